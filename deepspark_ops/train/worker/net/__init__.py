"""The net of a worker: one step on minibatches; TensorFlow in ``tf_model`` alone."""
