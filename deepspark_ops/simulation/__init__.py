"""The virtual cluster: runs train for real, in one process each, by the clock of a cluster that one does not have."""
