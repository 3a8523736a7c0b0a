"""The critical batch size with model and data, with either alone."""
