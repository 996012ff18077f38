"""Name and label of a run, for people."""
