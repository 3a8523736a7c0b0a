"""Schedules that nobody chose, predicted before they are trained."""
