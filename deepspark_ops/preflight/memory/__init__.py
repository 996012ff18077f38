"""Memory of a run, in total and by layer."""
