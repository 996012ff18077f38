"""How TensorFlow computes LSTM, step by step."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.net.shapes.recurrence import RecurrentOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.layers.lstm_unit import advance_cell
from caffe_import.tf_graph.operations.recurrent_steps import States, carried, exposed, initial_states, run_steps


@emitter("LSTM", orders_weights=True)
def emit_lstm(request: EmitRequest) -> Emission:
    """Where cont is 0 both states start from zero."""
    options = request.layer.definition.options
    assert isinstance(options, RecurrentOptions)

    def advance(states: States, gates: tf.Tensor, cont: tf.Tensor) -> States:
        cell, hidden = advance_cell(states[1], gates, cont)
        return hidden, cell

    states = initial_states(request, options, ("h", "c"))
    outputs, (hidden, cell) = run_steps(request, options, states, request.params[-1], advance)
    tops = (Blob.from_caffe(outputs), *exposed(options, (hidden, cell)))
    return Emission(tops, state=carried(options, {"h": hidden, "c": cell}))
