"""A net without a solver or a run: its outputs on data, and the times of its layers."""
