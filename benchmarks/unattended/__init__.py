"""Damaged files and killed processes: whether runs end as undisturbed ones do, or say why not."""
