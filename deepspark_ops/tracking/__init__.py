"""Runs and models in MLflow: planned without MLflow, sent by a child process; only the child imports MLflow."""
