"""Writes the pages of the docs, and the stub files, that follow from the code: ``python -m docs.generate``."""
