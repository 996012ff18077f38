"""Tasks of nets, and their consequences: a file per task, and the choice of a task."""
