"""A stage at work, shown on a terminal, in a notebook or as lines."""
