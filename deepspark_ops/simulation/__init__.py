"""The virtual cluster: real training, a process for each run, by the clock of a cluster that need not exist."""
