"""Machines, present or absent: what a device holds and how fast it is; programs compiled for it."""
