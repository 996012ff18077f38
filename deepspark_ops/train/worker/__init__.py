"""A worker: Spark task, loop, model, tau and rate; TensorFlow in ``tf_model`` alone."""
