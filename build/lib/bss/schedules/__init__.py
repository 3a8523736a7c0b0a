"""What to do at each token: batch schedules, learning rates, their coupling, and the Plan of both.

Pure values; no device is touched.
"""
