"""Datasets that share files with an earlier version of themselves: what stays, what is added, what does not count."""
