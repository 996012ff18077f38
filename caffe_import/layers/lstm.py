"""LSTM over the time axis. Source: BVLC Caffe, src/caffe/layers/lstm_layer.cpp and lstm_unit_layer.cpp.

Hochreiter and Schmidhuber, "Long short-term memory" (1997), with forget gates, without peepholes.
"""

from __future__ import annotations

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import VALUE_BYTES, LayerTraits, per_top_value
from caffe_import.net.shapes.recurrence import resolve_recurrence

_N_GATES = 4


@layer_type(
    "LSTM",
    bottoms=(2, 5),
    tops=(1, 3),
    label_bottoms=(1,),
    traits=LayerTraits(
        arithmetic="float32",
        axis_order="caffe",
        gradient_keeps="bottoms and tops",
        reads_overwritten=False,
        kept_bytes=per_top_value(12 * VALUE_BYTES),
    ),
    no_keras_form="time is its first axis, and a second bottom marks where sequences begin",
)
def define_lstm(request: LayerRequest) -> LayerDefinition:
    """Bottoms: x (T, N, ...), cont (T, N), [static (N, ...)], [h0, c0]. Tops: h (T, N, H), [hT, cT].

    Blobs: W_x (4H, in), b (4H), [W_static (4H, in)], W_h (4H, H); rows in the order i, f, o, g.
    """
    options = resolve_recurrence(request, n_states=2)
    param = request.message.recurrent_param
    n_rows = _N_GATES * options.n_hidden
    blobs = [BlobSpec((n_rows, options.n_inputs), param.weight_filler), BlobSpec((n_rows,), param.bias_filler)]
    if options.n_static:
        blobs.append(BlobSpec((n_rows, options.n_static), param.weight_filler))
    blobs.append(BlobSpec((n_rows, options.n_hidden), param.weight_filler))
    per_stream = options.n_steps * (options.n_inputs + options.n_hidden) + options.n_static
    states = (options.hidden_shape,) * 2
    return LayerDefinition(
        top_shapes=(options.top_shape, *(states if options.is_exposed else ())),
        blobs=tuple(blobs),
        options=options,
        flops=2 * n_rows * options.n_streams * per_stream,
        state_shapes={} if options.is_exposed else dict(zip(("h", "c"), states, strict=True)),
        ignores_lr_mult=True,
        gradient_reads_bottoms=True,
    )
