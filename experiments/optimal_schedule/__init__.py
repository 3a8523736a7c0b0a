"""Optimal batch schedules of the functional scaling law, without training."""
