"""One training run: config, step, buckets, loop, evaluation, checkpoints, run directory."""
