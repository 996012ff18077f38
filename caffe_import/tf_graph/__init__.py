"""How TensorFlow computes a net: a pure function over one float32 vector, without a ``tf.Variable``.

The import of this package imports TensorFlow, and has Python's garbage collector pass over all objects that there are
by then (``gc.freeze``): TensorFlow's are 400,000, and stay. Looking through them again and again took a fifth of the
import, and a tenth of the compilation of nets.

TensorFlow's import ends with an import of Keras, to register optimizers that its SavedModels name, and goes on where
Keras is missing. That took another fifth. A net needs no Keras; ``import keras`` and ``tf.keras`` load Keras later.
"""

import gc
import sys
from types import ModuleType

from caffe_import.extras import require

require("tensorflow", part=__name__)

_modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]  # None: an import raises ImportError
_KERAS = "keras.src.optimizers"
"""What TensorFlow imports of Keras."""

_collects = gc.isenabled()
gc.disable()
_modules.setdefault(_KERAS, None)
try:
    import tensorflow as tensorflow  # here, so that every module of both packages finds it imported
finally:
    if _modules[_KERAS] is None:
        del _modules[_KERAS]
    if _collects:
        gc.enable()
gc.freeze()
