"""Predictions written down before their runs are trained, and how they are scored.

draw.py draws schedules, registration.py holds what is written, ancestry.py asks git whether it came
first, score.py compares it with what was measured.
"""
