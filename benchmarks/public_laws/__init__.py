"""Scores of laws on public tables, by splits that do not change."""
