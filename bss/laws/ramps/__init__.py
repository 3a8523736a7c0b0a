"""Ramps from measurements along a run: the gradient noise scale, and branches from checkpoints."""
