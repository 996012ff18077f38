"""How TensorFlow computes RNN, step by step; the output product for all steps at once."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.net.shapes.recurrence import RecurrentOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.recurrent_steps import States, carried, exposed, initial_states, run_steps


@emitter("RNN")
def emit_rnn(request: EmitRequest) -> Emission:
    """h_t = tanh(W_xh x_t + b_h + W_hh cont_t h_{t-1}); o_t = tanh(W_ho h_t + b_o)."""
    options = request.layer.definition.options
    assert isinstance(options, RecurrentOptions)
    recurrent, to_output, output_bias = request.params[-3:]

    def step(states: States, driven: tf.Tensor, cont: tf.Tensor) -> States:
        return (tf.tanh(driven + tf.matmul(cont * states[0], recurrent, transpose_b=True)),)

    hiddens, (hidden,) = run_steps(request, options, initial_states(request, options, ("h",)), step)
    flat = tf.reshape(hiddens, (-1, options.n_hidden))
    outputs = tf.tanh(tf.nn.bias_add(tf.matmul(flat, to_output, transpose_b=True), output_bias))
    tops = (Blob.from_caffe(tf.reshape(outputs, options.top_shape)), *exposed(options, (hidden,)))
    return Emission(tops, state=carried(options, {"h": hidden}))
