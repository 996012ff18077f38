"""Stage check: needs and consistency of a solver and its nets, before a cluster is needed."""
