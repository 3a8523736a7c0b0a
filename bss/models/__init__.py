"""Decoder-only transformers, their named sizes, and exact parameter and FLOP counts."""
