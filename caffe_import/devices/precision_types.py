"""The layers with 16-bit arithmetic under a plan's ``precision``; graph, check and docs read the list here.

Three kinds, as in Micikevicius et al., "Mixed precision training" (2018), section 3.3. Each layer type declares its own
(``LayerTraits.arithmetic``):

* ``16 bit``: products. Inputs, parameters and results are rounded to 16 bits, sums are float32.
* ``kept``: layers that choose, move, drop or scale single values. The layers compute in the bottom's type: nothing is
lost, but a rounding by scaling layers (Dropout, ReLU's negative slope). Pooling with MAX belongs here, but not with a
mask.
* ``float32``: all others: losses, statistics, sums of many values, and whatever raises to a power or divides. So are
  LSTM and RNN, whose states are added to at every step, and a net's Python layers.
"""

from __future__ import annotations

from caffe_import.net.layer_traits import Arithmetic
from caffe_import.net.net_spec import LayerSpec, NetSpec


def arithmetic_of(layer: LayerSpec) -> Arithmetic:
    """Return how ``layer`` computes under ``bfloat16`` or ``float16``."""
    return layer.traits.arithmetic


def layers_in_16_bit(net: NetSpec) -> tuple[str, ...]:
    """Return the names of the layers that ``precision`` changes, in the net's order."""
    return tuple(layer.name for layer in net.layers if arithmetic_of(layer) == "16 bit")
