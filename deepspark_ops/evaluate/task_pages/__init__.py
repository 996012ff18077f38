"""Report sections of each task except classification: figures, charts, examples."""
