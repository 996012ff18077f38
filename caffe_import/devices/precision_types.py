"""Which layers compute in 16 bits under a plan's ``precision``: the one list, which graph, check and docs read.

Three kinds, as in Micikevicius et al., "Mixed precision training" (2018), section 3.3:

* ``16 bit``: products. Their inputs, parameters and results are rounded to 16 bits, their sums are float32.
* ``kept``: layers that choose, move, drop or scale single values. They compute in what they get: nothing is lost, but
  one rounding where they scale (Dropout, ReLU's negative slope).
* ``float32``: all others: losses, statistics, sums of many values, and whatever raises to a power or divides. So are
  LSTM and RNN, whose states are added to at every step, and a net's Python layers.
"""

from __future__ import annotations

from typing import Final, Literal

from caffe_import.layers.eltwise import EltwiseOptions
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.net.shapes.pooled_windows import PoolingOptions

Arithmetic = Literal["16 bit", "kept", "float32"]

PRODUCTS: Final = frozenset(
    {"Convolution", "ConvolutionDepthwise", "Deconvolution", "DepthwiseConvolution", "InnerProduct"}
)
CARRIERS: Final = frozenset(
    {
        "AbsVal", "Concat", "Dropout", "Flatten", "Permute", "ReLU", "ReLU6", "Reshape", "ShuffleChannel",
        "Silence", "Slice", "Split",
    }
)  # fmt: skip
"""Also ``kept``: Pooling with MAX and no second top (which holds positions), Eltwise with MAX."""


def arithmetic_of(layer: LayerSpec) -> Arithmetic:
    """Return how ``layer`` computes under ``bfloat16`` or ``float16``."""
    if layer.type in PRODUCTS:
        return "16 bit"
    return "kept" if layer.type in CARRIERS or _takes_maxima(layer) else "float32"


def layers_in_16_bit(net: NetSpec) -> tuple[str, ...]:
    """Return the names of the layers that ``precision`` changes, in the net's order."""
    return tuple(layer.name for layer in net.layers if arithmetic_of(layer) == "16 bit")


def _takes_maxima(layer: LayerSpec) -> bool:
    options = layer.definition.options
    if isinstance(options, PoolingOptions):
        return layer.type == "Pooling" and options.method == "MAX" and not options.has_mask
    return isinstance(options, EltwiseOptions) and options.operation == "MAX"
