"""The driver of a training: course, signals, events and end; Spark in ``spark_job`` alone. Never TensorFlow."""
