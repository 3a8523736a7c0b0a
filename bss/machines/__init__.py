"""Devices that are not present, to compile for."""
