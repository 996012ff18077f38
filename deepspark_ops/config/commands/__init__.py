"""Options of the commands that are no stage of a run: they look at a host, foresee a run, or use what one has made."""
