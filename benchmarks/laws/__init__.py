"""Fits of planted data beside what was planted."""
