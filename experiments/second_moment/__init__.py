"""Effect of the second moment, the LR and the LR phase on the best batch size."""
