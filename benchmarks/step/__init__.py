"""Our training step, compared with the same step in other frameworks.

    python -m benchmarks.step                                 # all shapes, one core and two
    python -m benchmarks.step --shapes "d 64 B 8" --cores 1   # some

Model, batch size, AdamW with clipping, and precision are equal. Variants are ours with one or
several steps per dispatch, PyTorch eager and compiled, and plain flax with optax (a jitted step).
"""
