"""Runs and models in MLflow: planned without MLflow, sent by a child process, which alone imports MLflow."""
