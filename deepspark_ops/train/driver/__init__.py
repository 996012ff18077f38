"""The driver of a training: its course, signals, events and end; Spark in ``spark_job`` alone. Never TensorFlow."""
