"""Measurements on an accelerator: one command, one time budget.

    python -m benchmarks.accelerator --minutes 8      # each row is saved as soon as it is measured
    python -m benchmarks.accelerator --tiny           # toy sizes, on a CPU too

Tokens are random; everything else is the project's own: its models, its step, its loop. This
process opens no device: cases are measured in other processes, one after another, so that no case
takes the memory of another, or ends it.
"""
