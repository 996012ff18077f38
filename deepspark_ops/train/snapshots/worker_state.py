"""The state of a worker besides the center: solver history, layer state, update count. As numpy arrays."""

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
    """The state of a worker after some steps. The arrays are the holder's.

    Attributes:
        history: Solver history, shape (n_slots, n_params), float32.
        layer_state: Recurrent h and c by ``layer/name``, float32.
        updates: Updates that this worker has made; the t of Adam, a part of the seed of random draws.
        loss_scale: State of loss scaling; None but for float16.
        stabiliser: State of the worker's stabiliser, float32; None without a state.
    """

    history: npt.NDArray[np.float32]
    layer_state: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    updates: int = 0
    loss_scale: LossScale | None = None
    stabiliser: npt.NDArray[np.float32] | None = None

    def to_parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[np.float32]]]:
        """Return ``(meta, arrays)`` for ``WorkerLink.send_state``, without copies."""
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
