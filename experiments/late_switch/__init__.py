"""Fast catch-up and late switching, under each learning-rate schedule."""
