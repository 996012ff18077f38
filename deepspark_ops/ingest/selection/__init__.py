"""Which records of a source are taken, how often, and into which split."""
