"""What MLflow is told of runs and models: planned without it, sent by a child process that alone imports it."""
