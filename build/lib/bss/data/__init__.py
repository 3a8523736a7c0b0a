"""Corpora, tokenizers, token shards and the stream of training sequences.

A corpus yields documents; tokens are written once to memory-mapped shards, which are all that
training reads.
"""
