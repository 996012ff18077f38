"""A worker: its Spark task, its loop, its model, tau and rate; TensorFlow in ``tf_model`` alone."""
