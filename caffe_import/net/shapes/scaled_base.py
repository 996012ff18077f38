"""What Exp and Log share: a base, and x scaled and shifted before it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerRequest
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class ScaledBase:
    """Resolved options.

    Attributes:
        log_base: Natural logarithm of the base; exactly 1 for base -1, which stands for e.
        scale: Factor of x.
        shift: Added to scale x.
    """

    log_base: float
    scale: float
    shift: float


def resolve_scaled_base(request: LayerRequest, param: caffe_pb2.ExpParameter | caffe_pb2.LogParameter) -> ScaledBase:
    """Return the options of an Exp or Log layer (ExpLayer::LayerSetUp, LogLayer::LayerSetUp).

    Raises:
        NetError: The base is neither positive nor -1.
    """
    if param.base != -1 and param.base <= 0:
        finding = f"base={param.base}: must be positive, or -1 for e"
        raise request.refuse(finding)
    return ScaledBase(1.0 if param.base == -1 else math.log(param.base), param.scale, param.shift)
