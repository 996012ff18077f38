"""How often a worker exchanges, and at which rate and momentum it steps."""
