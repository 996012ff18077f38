"""How TensorFlow computes a net: a pure function over one float32 vector, without a ``tf.Variable``."""

from caffe_import.extras import require

require("tensorflow", part=__name__)
