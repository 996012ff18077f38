"""Inputs of a bundle: files, lists, datasets and tables as a stream of records, which is read lazily."""
