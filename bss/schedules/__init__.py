"""Batch and learning-rate schedules, scaling rules, and the Plan that combines them.

All are pure values; no device is used.
"""
