"""Arithmetic of axes, windows and options for several layer types; the rules of a single type are in ``layers/``."""
