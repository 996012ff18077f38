"""Common parts of our operators' tasks: paths, log lines, errors, a stage as a child process or on Spark."""
