"""Scores of an exported bundle: what is delivered, on a run's data."""
