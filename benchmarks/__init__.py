"""What the speed claims stand on: `python -m benchmarks.NAME`, ratios from interleaved runs."""
