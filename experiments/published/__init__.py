"""Results of public runs of 48M to 1.7B parameters on best batch sizes, ramps and optimizers."""
