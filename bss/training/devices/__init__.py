"""The devices and processes that a run has, and how they share its work."""
