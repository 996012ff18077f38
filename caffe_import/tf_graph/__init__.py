"""How TensorFlow computes a net: a pure function over one float32 vector, without a ``tf.Variable``.

The import of this package imports TensorFlow, and has Python's garbage collector pass over all objects that there are
by then (``gc.freeze``): TensorFlow's are 400,000, and stay. Looking through them again and again took a fifth of the
import, and a tenth of the compilation of nets.
"""

import gc

from caffe_import.extras import require

require("tensorflow", part=__name__)

_collects = gc.isenabled()
gc.disable()
try:
    import tensorflow  # noqa: F401 - here, so that every module of this package finds it imported
finally:
    if _collects:
        gc.enable()
gc.freeze()
