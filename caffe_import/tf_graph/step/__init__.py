"""A training step as a graph: passes, the update, and what loops over them."""
