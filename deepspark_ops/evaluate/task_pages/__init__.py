"""What the report shows of each task but classification: figures, charts, examples."""
