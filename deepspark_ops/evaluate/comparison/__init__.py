"""Two nets on the same samples: which is better, beyond chance, and where."""
