"""Models in production: versions, the pointer, and the rule for changing the pointer."""
