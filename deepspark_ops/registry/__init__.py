"""Models in production: versions, the pointer, and the rule that changes the pointer."""
