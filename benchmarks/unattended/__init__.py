"""Damaged files and killed processes: runs must end like undisturbed ones, or report the cause."""
