"""Device and arithmetic of the cases, and the tolerances of each kind of arithmetic. One place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from caffe_import.devices.compute_plan import ComputePlan, Precision

Arithmetic = Literal["cpu", "gpu", "tf32", "bfloat16"]


@dataclass(frozen=True)
class Bounds:
    """Largest relative errors, as ``findings.relative_error`` measures them.

    Attributes:
        forward: Of a pass's values.
        backward: Of gradients.
        trajectory: Of parameters, losses and norms along 20 updates.
        kinked: The same where MAX pooling or ReLU let rounding move a value across the kink.
    """

    forward: float
    backward: float
    trajectory: float
    kinked: float


BOUNDS: Final[dict[Arithmetic, Bounds]] = {
    # float32 on both sides; the order of additions differs.
    "cpu": Bounds(1e-5, 1e-4, 1e-4, 1e-3),
    # float32, TF32 off. cuDNN may compute a convolution by Winograd's transform, whose intermediate values are larger
    # than the result (up to a digit is lost), and adds up gradients in an order that differs from run to run. Not
    # measured: no GPU was at hand.
    "gpu": Bounds(1e-4, 1e-3, 1e-3, 1e-2),
    # Factors with 10 bits of mantissa (2**-11 = 5e-4 of rounding each), sums in float32. Not measured likewise.
    "tf32": Bounds(1e-2, 2e-2, 5e-2, 2e-1),
    # Factors and products with 7 bits of mantissa (2**-8 = 4e-3 each), sums in float32. On a CPU (AVX-512): 0.03
    # for single layers, 0.17 for nets, 0.13 along SGD. Adam and AdaGrad divide a gradient by its own size: where
    # rounding turns the sign of a small one, a weight moves a whole step the other way (0.58).
    "bfloat16": Bounds(1e-1, 2e-1, 1.0, 1.0),
}


@dataclass(frozen=True)
class Setting:
    """How the cases are computed.

    Attributes:
        device: TensorFlow's name of the device; empty: its own choice.
        arithmetic: Whose bounds hold.
    """

    device: str = ""
    arithmetic: Arithmetic = "cpu"

    @property
    def bounds(self) -> Bounds:
        """How near Caffe's numbers must be."""
        return BOUNDS[self.arithmetic]

    @property
    def plan(self) -> ComputePlan:
        """The plan of a pass or a training step."""
        precision: Precision = "bfloat16" if self.arithmetic == "bfloat16" else "float32"
        return ComputePlan(precision=precision)

    @property
    def devices(self) -> tuple[str, ...]:
        """The device as ``compile_training`` takes it."""
        return (self.device,) if self.device else ()


PLAIN_SETTING: Final = Setting()
"""TensorFlow's own choice of device, which without a GPU is the CPU, in float32."""
