"""What an accelerator really does, beside what its compiler predicted: one command, one budget.

    python -m benchmarks.accelerator --minutes 8      # each row is saved as soon as it is measured
    python -m benchmarks.accelerator --tiny           # toy sizes, on a CPU too
    python -m benchmarks.accelerator --show benchmarks/results/accelerator/DEVICE.jsonl

Tokens are random; everything else is the project's own: its models, its step, its loop. This
process opens no device: cases are measured in processes of their own, one after another, so that
what one takes of memory, or dies of, is its own.
"""
