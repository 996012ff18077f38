"""Runs and datasets of an installation that may be removed, and their removal."""
