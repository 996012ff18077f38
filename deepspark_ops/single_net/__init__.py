"""A net by itself, without a solver or a run: what it gives on data, and how long its layers take."""
