"""What public runs of 48M to 1.7B parameters state about best batch sizes, ramps and optimizers."""
