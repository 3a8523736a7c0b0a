"""E(S): the laws, the design, fitting, comparing by left-out batches."""
