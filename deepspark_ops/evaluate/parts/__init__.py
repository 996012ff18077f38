"""Scores parts of the samples in several processes, and merges the results."""
