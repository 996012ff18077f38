"""Stage check: what a solver and its nets need and whether they fit together, before any cluster time is spent."""
