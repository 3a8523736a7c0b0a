"""Speed measurements: `python -m benchmarks.NAME`, ratios from interleaved runs."""
