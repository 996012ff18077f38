"""Summary of runs for lists: a small index file in each run's folder, and the selection of rows."""
