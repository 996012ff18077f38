"""Memory of a whole training step, from shapes alone: of its pass, of parameters and history, of what it is fed.

Fitted to the peaks that TensorFlow 2.21's CPU allocator counts (oneDNN, one thread, MiB; mean of four steps of
``tests/integration/devices/step_peaks.py``, each net in a process of its own)::

    net (solver)          batch  parameters  measured  forecast | recompute: measured  forecast
    LeNet (SGD)             64         1.6        17        17 |
    cifar10_quick (SGD)    100         0.6        43        42 |                  41        45
    CaffeNet (SGD)           8         233     1,600     1,637 |
    CaffeNet (SGD)          64         233     1,811     1,703 |               1,712     1,703
    CaffeNet (Adam)          8         233     2,088     2,103 |
    GoogLeNet (SGD)          8          51       585       568 |
    GoogLeNet (SGD)         16          51       920       881 |                 693       685
      with iter_size 2       8          51       737       726 |                 626       628
    SqueezeNet (SGD)         8         4.7       198       208 |
    SqueezeNet (SGD)        32         4.7       747       763 |                 418       390
    ResNet-50 (SGD)          4          98     1,065     1,019 |
    ResNet-50 (SGD)          8          98     1,707     1,549 |                 885       792
    ResNet-50 (Adam)         4          98     1,249     1,214 |
    VGG-16, fc 64 (SGD)      8          63     1,091       861 |

One step may take a tenth more than another: the order in which TensorFlow runs kernels is not fixed, and its allocator
hands out larger pieces than it was asked for, most of all where blobs are large: VGG-16 took 850 to 970 in a second
process. A GPU's memory was not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from caffe_import.devices.layer_tensors import layer_tensors
from caffe_import.devices.pass_memory import pass_peak_bytes
from caffe_import.net.net_spec import NetSpec

_VECTORS_IN_PASS: Final = 3
"""Of the parameters: the caller's vector, its blobs, and their gradients."""
_SLOTS_IN_PASS: Final = 2
"""Of each history: the caller's, and its product with the momentum, which TensorFlow computes early."""
_VECTORS_IN_UPDATE: Final = 5
"""Those of the pass, and the parameters after the update, as blobs and as the vector that is handed back."""
_SLOTS_IN_UPDATE: Final = 2
"""Before and after."""
_VECTORS_OF_SUMS: Final = 3
"""With iter_size: the sum of the gradients before and after a pass, and what the loop hands over."""
_FEEDS: Final = 2
"""What is fed, and the minibatch that is cut out of it."""
_SCRATCH: Final = 1.12
"""What kernels take for themselves while they run, and weight gradients that TensorFlow leaves for later."""
_SCRATCH_RECOMPUTING: Final = 1.2
"""The same beside the smaller peak of a pass that is recomputed."""


@dataclass(frozen=True)
class StepMemory:
    """What a training step takes at its peak.

    Attributes:
        activation_bytes: Blobs of a pass and their gradients, scratch included.
        fed_bytes: What it is fed.
        param_bytes: Parameters, gradients and history while a pass is computed.
        update_bytes: The same while the update is made, when no blob is there any more.
    """

    activation_bytes: int
    fed_bytes: int
    param_bytes: int
    update_bytes: int

    @property
    def total_bytes(self) -> int:
        """The peak: in the pass or in the update."""
        return max(self.activation_bytes + self.param_bytes, self.update_bytes) + self.fed_bytes

    def with_batch(self, factor: float) -> StepMemory:
        """Return the memory with ``factor`` times the batch_size."""
        return StepMemory(
            int(self.activation_bytes * factor), int(self.fed_bytes * factor), self.param_bytes, self.update_bytes
        )


def step_memory(
    net: NetSpec, n_slots: int, segments: Sequence[Sequence[str]] = (), *, iter_size: int = 1
) -> StepMemory:
    """Return the memory of a step on one device.

    Args:
        net: The TRAIN net.
        n_slots: History blobs of each parameter blob.
        segments: As ``ComputePlan.recompute``.
        iter_size: Passes of a step; they are fed together.
    """
    names = [layer.name for layer in net.layers]
    cuts = [(names.index(segment[0]), names.index(segment[-1]) + 1) for segment in segments]
    vector = 4 * net.params.n_params
    sums = _VECTORS_OF_SUMS * vector if iter_size > 1 else 0
    fed = 4 * sum(prod(shape) for shape in net.inputs.values())
    return StepMemory(
        activation_bytes=int((_SCRATCH_RECOMPUTING if cuts else _SCRATCH) * pass_peak_bytes(layer_tensors(net), cuts)),
        fed_bytes=fed * (iter_size + _FEEDS - 1),
        param_bytes=(_VECTORS_IN_PASS + _SLOTS_IN_PASS * n_slots) * vector + sums,
        update_bytes=(_VECTORS_IN_UPDATE + _SLOTS_IN_UPDATE * n_slots) * vector,
    )
