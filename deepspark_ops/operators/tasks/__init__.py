"""What the tasks of all our operators share: paths, log lines, errors, a stage as a child process or on Spark."""
