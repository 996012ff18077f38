"""A stage as a process: start, log lines with levels, exit codes, its end with its parent."""
