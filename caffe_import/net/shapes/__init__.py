"""Arithmetic of axes, windows and options that several layer types share; one type's own rules are in ``layers/``."""
