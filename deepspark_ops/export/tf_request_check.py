"""A request of a wrong shape ends in an error that says so, inside the exported graph.

TensorFlow compares a request's dtype with the signature, but not its shape: a kernel that trusts the shape it was
compiled for then ends the whole process that serves the model.
"""

from __future__ import annotations

import tensorflow as tf

from caffe_import.net.layer_registry import Shape

_AXES_TOLD = 16


def checked_request(values: tf.Tensor, name: str, shape: Shape) -> tf.Tensor:
    """Return a request's argument once its shape is one that the model takes.

    Args:
        values: The argument, batch axis first.
        name: Its name, for the message.
        shape: What is allowed behind the batch axis; -1 takes any extent but 0.

    Returns:
        The same values. Running it raises ``InvalidArgumentError`` with the argument's name, the shape that was found
        and what is allowed: another rank or extent, or no sample at all.
    """
    # A shape that the signature declares is taken for granted by everything behind it; this forgets it.
    seen = tf.raw_ops.PlaceholderWithDefault(input=values, shape=tf.TensorShape(None))
    found = tf.shape(seen)
    wanted = tf.constant([-1, *shape], tf.int32)
    rank = len(shape) + 1
    extents = tf.concat([found, tf.zeros([rank], tf.int32)], 0)[:rank]
    fits = tf.where(wanted < 0, extents > 0, extents == wanted)
    is_good = tf.logical_and(tf.size(found) == rank, tf.reduce_all(fits))
    allowed = ", ".join(["N", *(str(extent) if extent >= 0 else "any" for extent in shape)])
    told = [f'input "{name}": the request has shape', found, f"allowed: ({allowed}) with N of at least 1"]
    with tf.control_dependencies([tf.debugging.Assert(is_good, told, summarize=_AXES_TOLD)]):
        return tf.ensure_shape(tf.identity(seen), [None, *(extent if extent >= 0 else None for extent in shape)])
