"""Formats of a model in a bundle: one file per format, all with the same functions."""
