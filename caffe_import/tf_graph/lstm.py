"""How TensorFlow computes LSTM: unrolled over the steps, as in Caffe."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.recurrence import RecurrentOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.lstm_unit import advance_cell
from caffe_import.tf_graph.recurrent_steps import carried, continuations, exposed, initial_states, inputs_of_steps


@emitter("LSTM")
def emit_lstm(request: EmitRequest) -> Emission:
    """Where cont is 0 both states start from zero."""
    options = request.layer.definition.options
    assert isinstance(options, RecurrentOptions)
    hidden, cell = initial_states(request, options, ("h", "c"))
    weights = request.params[-1]
    outputs = []
    for driven, cont in zip(inputs_of_steps(request, options), continuations(request), strict=True):
        gates = driven + tf.matmul(cont * hidden, weights, transpose_b=True)
        cell, hidden = advance_cell(cell, gates, cont)
        outputs.append(hidden)
    tops = (Blob.from_caffe(tf.stack(outputs)), *exposed(options, (hidden, cell)))
    return Emission(tops, state=carried(options, {"h": hidden, "c": cell}))
