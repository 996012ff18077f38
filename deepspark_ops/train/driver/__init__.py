"""The driver of a training run: the Spark job, snapshots, start and resume. Never TensorFlow."""
