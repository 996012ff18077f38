"""Kinds of files in several formats of raw data: archives, lists, records of other systems."""
