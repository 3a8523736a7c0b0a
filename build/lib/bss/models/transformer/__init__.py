"""Decoder-only transformers: config and counts without JAX, and the network."""
