"""E(S) at one LR, the schedule derived from it, and its comparison with fixed batch sizes."""
