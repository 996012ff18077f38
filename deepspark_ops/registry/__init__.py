"""Models in production: versions, the pointer, and the rule that moves it."""
