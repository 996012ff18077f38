"""Planted faults: each must turn a test red. ``python -m tests.mutants`` (``make mutants``) runs them all."""
