"""A stage as a process: start, log lines with levels, exit codes, end with the parent."""
