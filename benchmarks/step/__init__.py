"""Our training step beside the same step as others would write it.

    python -m benchmarks.step                                 # all shapes, one core and two
    python -m benchmarks.step --shapes "d 64 B 8" --cores 1   # some

Model, batch, AdamW with clipping and precision are the same: ours with one step a dispatch and with
several; PyTorch, eager and compiled; plain flax with optax, a jitted step of this batch.
"""
