"""Check inside the exported graph: a request with a wrong shape ends in an error that names the shape.

TensorFlow compares a request's dtype with the signature, but not the shape: a kernel compiled for another shape then
ends the whole serving process.
"""

from __future__ import annotations

from caffe_import.net.layer_registry import Shape
from caffe_import.tf_graph import tensorflow as tf

_MAX_SHOWN_AXES = 16


def checked_request(values: tf.Tensor, name: str, shape: Shape) -> tf.Tensor:
    """Return a request's argument after a check of its shape.

    Args:
        values: The argument, batch axis first.
        name: Name of the argument, for the message.
        shape: Allowed extents after the batch axis; -1 allows any extent except 0.

    Returns:
        The same values. For another rank or extent, or a batch of 0 samples, running the operation raises
        ``InvalidArgumentError`` with the argument's name, the shape of the request and the allowed shape.
    """
    # Later operations rely on a shape that the signature declares; a placeholder of unknown shape hides the shape.
    untyped_values = tf.raw_ops.PlaceholderWithDefault(input=values, shape=tf.TensorShape(None))
    request_shape = tf.shape(untyped_values)
    allowed_shape = tf.constant([-1, *shape], tf.int32)
    rank = len(shape) + 1
    extents = tf.concat([request_shape, tf.zeros([rank], tf.int32)], 0)[:rank]
    fits = tf.where(allowed_shape < 0, extents > 0, extents == allowed_shape)
    is_good = tf.logical_and(tf.size(request_shape) == rank, tf.reduce_all(fits))
    allowed = ", ".join(["N", *(str(extent) if extent >= 0 else "any" for extent in shape)])
    message_parts = [
        f'input "{name}": the request has shape',
        request_shape,
        f"allowed: ({allowed}) with N of at least 1",
    ]
    with tf.control_dependencies([tf.debugging.Assert(is_good, message_parts, summarize=_MAX_SHOWN_AXES)]):
        return tf.ensure_shape(
            tf.identity(untyped_values), [None, *(extent if extent >= 0 else None for extent in shape)]
        )
