"""State, progress and curves of a run, for pages and terminals. No framework."""
