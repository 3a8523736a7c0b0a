"""E(S) and its schedules with one thing changed at a time."""
