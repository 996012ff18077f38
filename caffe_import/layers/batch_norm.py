"""BatchNorm: normalise each channel. Source: BVLC Caffe, src/caffe/layers/batch_norm_layer.cpp.

The affine part of other frameworks is a layer of its own: Scale.
"""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.net_spec import NetSpec


@dataclass(frozen=True)
class BatchNormOptions:
    """Resolved options.

    Attributes:
        use_global_stats: Normalise by the stored sums instead of the batch; default: in TEST.
        moving_average_fraction: Factor of the stored sums before a batch is added.
        eps: Added to the variance.
    """

    use_global_stats: bool
    moving_average_fraction: float
    eps: float


@layer_type(
    "BatchNorm",
    bottoms=(1, 1),
    tops=(1, 1),
    in_place=True,
    traits=LayerTraits(
        arithmetic="float32", axis_order="channels last", gradient_keeps="bottoms", reads_overwritten=False
    ),
)
def define_batch_norm(request: LayerRequest) -> LayerDefinition:
    """Top: the bottom's shape. Blobs: sum of means (C), sum of variances (C), sum of weights (1), all ``statistic``.

    A bottom with a single axis counts as a single channel.
    """
    param = request.message.batch_norm_param
    shape = request.bottom_shapes[0]
    if not shape:
        finding = "bottom has no axes; expected (N, C, ...)"
        raise request.refuse(finding)
    n_channels = 1 if len(shape) == 1 else shape[1]
    use_global_stats = param.use_global_stats if param.HasField("use_global_stats") else request.phase == "TEST"
    notes: tuple[str, ...] = ()
    if request.phase == "TEST" and not use_global_stats:
        notes = ("use_global_stats: false in TEST: every test batch moves the stored statistics",)
    return LayerDefinition(
        top_shapes=request.bottom_shapes,
        blobs=(
            BlobSpec((n_channels,), kind="statistic"),
            BlobSpec((n_channels,), kind="statistic"),
            BlobSpec((1,), kind="statistic"),
        ),
        options=BatchNormOptions(use_global_stats, param.moving_average_fraction, param.eps),
        notes=notes,
        mixes_samples=not use_global_stats,
    )


def moving_fractions(net: NetSpec) -> dict[str, float]:
    """Return layer -> ``moving_average_fraction`` of the layers whose statistics every pass of the net moves."""
    layer_options = ((layer.name, layer.definition.options) for layer in net.layers)
    return {
        name: options.moving_average_fraction
        for name, options in layer_options
        if isinstance(options, BatchNormOptions) and not options.use_global_stats
    }
