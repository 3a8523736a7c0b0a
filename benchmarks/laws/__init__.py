"""Fits of planted data, compared with the planted values."""
