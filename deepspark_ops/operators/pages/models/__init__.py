"""The pages "Models": what is in production, where it comes from, and what changes it."""
