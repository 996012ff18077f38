"""Compares two nets on the same samples: the better net, beyond chance, and the classes with a difference."""
