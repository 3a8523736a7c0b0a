"""Final losses over model size, tokens and batch, and the best batch by them."""
