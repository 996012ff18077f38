"""How TensorFlow computes a net: a pure function over one float32 vector, without a ``tf.Variable``."""
