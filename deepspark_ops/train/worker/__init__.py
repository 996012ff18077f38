"""A worker: its process, its loop, its batches; TensorFlow in ``tf_model`` alone."""
