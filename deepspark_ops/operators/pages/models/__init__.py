"""The pages "Models": versions, production, and the forms for changes."""
