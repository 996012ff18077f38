"""What a worker knows and the center does not: solver history, layer state, update count. As numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.devices.loss_scale import LossScale

_LAYER_STATE = "layer_state/"
_STABILISER = "stabiliser"


@dataclass(frozen=True)
class WorkerState:
    """One worker's own state after some number of its steps. The arrays are the holder's.

    Attributes:
        history: Solver history, shape (n_slots, n_params), float32.
        layer_state: Recurrent h and c by ``layer/name``, float32.
        updates: Updates this worker has made; the t of Adam, the seed of its random draws.
        loss_scale: What loss scaling goes on with; None but for float16.
        stabiliser: What the worker's stabiliser goes on with, float32; None for nothing.
    """

    history: npt.NDArray[np.float32]
    layer_state: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    updates: int = 0
    loss_scale: LossScale | None = None
    stabiliser: npt.NDArray[np.float32] | None = None

    def to_parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[np.float32]]]:
        """Return ``(meta, arrays)`` as ``WorkerLink.send_state`` takes them; nothing is copied."""
        arrays = {"history": self.history}
        arrays |= {_LAYER_STATE + name: value for name, value in self.layer_state.items()}
        if self.stabiliser is not None:
            arrays[_STABILISER] = self.stabiliser
        scale = {} if self.loss_scale is None else {"loss_scale": asdict(self.loss_scale)}
        return {"updates": self.updates, **scale}, arrays

    @classmethod
    def from_parts(cls, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[np.float32]]) -> WorkerState:
        """Undo ``to_parts``."""
        layer_state = {
            name.removeprefix(_LAYER_STATE): value for name, value in arrays.items() if name.startswith(_LAYER_STATE)
        }
        scale = LossScale(**meta["loss_scale"]) if "loss_scale" in meta else None
        return cls(arrays["history"], layer_state, int(meta["updates"]), scale, arrays.get(_STABILISER))
