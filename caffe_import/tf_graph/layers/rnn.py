"""How TensorFlow computes RNN, step by step; the output product for all steps at once."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.net.shapes.recurrence import RecurrentOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.fixed_weights import in_graph
from caffe_import.tf_graph.operations.recurrent_steps import carried, exposed, initial_states, run_steps
from caffe_import.tf_graph.operations.weight_product import times_weights


@emitter("RNN", orders_weights=True)
def emit_rnn(request: EmitRequest) -> Emission:
    """h_t = tanh(W_xh x_t + b_h + W_hh cont_t h_{t-1}); o_t = tanh(W_ho h_t + b_o)."""
    options = request.layer.definition.options
    assert isinstance(options, RecurrentOptions)
    recurrent, to_output, output_bias = request.params[-3:]
    states = initial_states(request, options, ("h",))
    hiddens, (hidden,) = run_steps(request, options, states, recurrent, lambda _, rows, __: (tf.tanh(rows),))
    flat = tf.reshape(hiddens, (-1, options.n_hidden))
    outputs = tf.tanh(tf.nn.bias_add(times_weights(flat, to_output), in_graph(output_bias)))
    tops = (Blob.from_caffe(tf.reshape(outputs, options.top_shape)), *exposed(options, (hidden,)))
    return Emission(tops, state=carried(options, {"h": hidden}))
