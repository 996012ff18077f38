"""What may be removed of the runs and datasets of an installation, and its removal."""
