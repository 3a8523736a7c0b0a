"""E(S), B_min, B_opt and the batch schedule of arXiv 2601.05034, in a regime of large effects."""
