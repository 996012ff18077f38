"""Tasks of nets: a file per task, and the choice of a task."""
