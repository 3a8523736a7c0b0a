"""Corpora, tokenizers, token shards and the stream of training sequences.

Text lives in tensorflow-datasets (ArrayRecord); tokens are written once to memory-mapped shards,
which are all that training reads.
"""
