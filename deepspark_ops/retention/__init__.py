"""Finds and removes unneeded runs and datasets of an installation."""
