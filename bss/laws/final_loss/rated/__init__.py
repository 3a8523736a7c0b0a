"""The law of final losses where learning rates vary: loss(N, D, B, rate), every row counts."""
