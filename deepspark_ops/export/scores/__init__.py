"""Scores of an exported bundle on a run's data."""
