"""Kinds of files that several formats of raw data are made of: archives, lists, records of other systems."""
