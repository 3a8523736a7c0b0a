"""E(S), B_min, B_opt and the batch schedule of arXiv 2601.05034, measured where they are large."""
