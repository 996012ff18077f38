"""Recorded and repeated runs."""
