"""How TensorFlow computes RNN: unrolled over the steps, as in Caffe; the output product for all steps at once."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.recurrence import RecurrentOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.recurrent_steps import carried, continuations, exposed, initial_states, inputs_of_steps


@emitter("RNN")
def emit_rnn(request: EmitRequest) -> Emission:
    """h_t = tanh(W_xh x_t + b_h + W_hh cont_t h_{t-1}); o_t = tanh(W_ho h_t + b_o)."""
    options = request.layer.definition.options
    assert isinstance(options, RecurrentOptions)
    (hidden,) = initial_states(request, options, ("h",))
    recurrent, to_output, output_bias = request.params[-3:]
    hiddens = []
    for driven, cont in zip(inputs_of_steps(request, options), continuations(request), strict=True):
        hidden = tf.tanh(driven + tf.matmul(cont * hidden, recurrent, transpose_b=True))
        hiddens.append(hidden)
    flat = tf.reshape(tf.stack(hiddens), (-1, options.n_hidden))
    outputs = tf.tanh(tf.nn.bias_add(tf.matmul(flat, to_output, transpose_b=True), output_bias))
    tops = (Blob.from_caffe(tf.reshape(outputs, options.top_shape)), *exposed(options, (hidden,)))
    return Emission(tops, state=carried(options, {"h": hidden}))
