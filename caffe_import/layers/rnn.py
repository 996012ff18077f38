"""RNN over the time axis, tanh inside and at the output. Source: BVLC Caffe, src/caffe/layers/rnn_layer.cpp."""

from __future__ import annotations

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import VALUE_BYTES, LayerTraits, per_top_value
from caffe_import.net.shapes.recurrence import resolve_recurrence


@layer_type(
    "RNN",
    bottoms=(2, 4),
    tops=(1, 2),
    label_bottoms=(1,),
    traits=LayerTraits(
        arithmetic="float32",
        axis_order="caffe",
        gradient_keeps="bottoms and tops",
        reads_overwritten=False,
        kept_bytes=per_top_value(3 * VALUE_BYTES),
    ),
    no_keras_form="time is its first axis, and a second bottom marks where sequences begin",
)
def define_rnn(request: LayerRequest) -> LayerDefinition:
    """Bottoms: x (T, N, ...), cont (T, N), [static (N, ...)], [h0]. Tops: o (T, N, H), [hT].

    Blobs: W_xh (H, in), b_h (H), [W_static (H, in)], W_hh (H, H), W_ho (H, H), b_o (H).
    """
    options = resolve_recurrence(request, n_states=1)
    param = request.message.recurrent_param
    n_hidden = options.n_hidden
    weights, biases = param.weight_filler, param.bias_filler
    blobs = [BlobSpec((n_hidden, options.n_inputs), weights), BlobSpec((n_hidden,), biases)]
    if options.n_static:
        blobs.append(BlobSpec((n_hidden, options.n_static), weights))
    blobs += [BlobSpec((n_hidden, n_hidden), weights)] * 2
    blobs.append(BlobSpec((n_hidden,), biases))
    per_stream = options.n_steps * (options.n_inputs + 2 * n_hidden) + options.n_static
    return LayerDefinition(
        top_shapes=(options.top_shape, *((options.hidden_shape,) if options.is_exposed else ())),
        blobs=tuple(blobs),
        options=options,
        flops=2 * n_hidden * options.n_streams * per_stream,
        state_shapes={} if options.is_exposed else {"h": options.hidden_shape},
        ignores_lr_mult=True,
        gradient_reads_bottoms=True,
    )
