"""How TensorFlow computes LSTMUnit, also the cell of LSTM."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter


@emitter("LSTMUnit")
def emit_lstm_unit(request: EmitRequest) -> Emission:
    """Advance the cell by one step."""
    cell, gates, cont = (bottom.caffe for bottom in request.bottoms)
    next_cell, hidden = advance_cell(cell[0], gates[0], tf.stop_gradient(cont[0, :, tf.newaxis]))
    return Emission((Blob.from_caffe(next_cell[tf.newaxis]), Blob.from_caffe(hidden[tf.newaxis])))


def advance_cell(cell: tf.Tensor, gates: tf.Tensor, cont: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the next cell and hidden state.

        c' = cont f c + i g;  h' = o tanh(c')

    Args:
        cell: c, (N, H).
        gates: Before their nonlinearities, (N, 4H): i, f, o (sigmoid), g (tanh).
        cont: (N, 1), 0 where a sequence begins.
    """
    sigmoids, candidate = tf.split(gates, [3 * cell.shape[1], cell.shape[1]], axis=1)
    i, f, o = tf.split(tf.sigmoid(sigmoids), 3, axis=1)
    next_cell = cont * f * cell + i * tf.tanh(candidate)
    return next_cell, o * tf.tanh(next_cell)
