"""Arguments of a training step's traced functions, as a flat row of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StepArguments:
    """The arguments of a call, None for an unused argument: arrays or tensors, in a signature specs.

    The parameters are a single vector in ``params``, or on several devices ``pieces``; likewise the gradient.
    ``staged`` is the number of a vector of parameters and a history in TensorFlow's staging area (``whole_calls``).
    """

    staged: Any = None
    params: Any = None
    pieces: Sequence[Any] = ()
    history: Any = ()
    layer_state: Mapping[str, Any] = field(default_factory=dict)
    rates: Any = None
    blob_factors: Any = None
    updates: Any = None
    step: Any = None
    key: Any = None
    feeds: Mapping[str, Any] = field(default_factory=dict)
    gradient: Any = None
    gradients: Sequence[Any] = ()
    loss_scale: Any = None
    good_steps: Any = None

    def flat(self) -> list[Any]:
        """Return every leaf but None in a fixed order."""
        return [
            *(leaf for name in self._single() if (leaf := getattr(self, name)) is not None),
            *self.pieces,
            *self.gradients,
            *(blob for slot in self.history for blob in slot),
            *(self.layer_state[name] for name in sorted(self.layer_state)),
            *(self.feeds[name] for name in sorted(self.feeds)),
        ]

    def wrap(self, leaves: Sequence[Any]) -> StepArguments:
        """Return the leaves of ``flat`` in the structure of these arguments."""
        remaining_leaves = iter(leaves)
        single = {name: next(remaining_leaves) for name in self._single() if getattr(self, name) is not None}
        return StepArguments(
            **single,
            pieces=[next(remaining_leaves) for _ in self.pieces],
            gradients=[next(remaining_leaves) for _ in self.gradients],
            history=[[next(remaining_leaves) for _ in slot] for slot in self.history],
            layer_state={name: next(remaining_leaves) for name in sorted(self.layer_state)},
            feeds={name: next(remaining_leaves) for name in sorted(self.feeds)},
        )

    @staticmethod
    def _single() -> tuple[str, ...]:
        return (
            "staged",
            "params",
            "rates",
            "blob_factors",
            "updates",
            "step",
            "key",
            "gradient",
            "loss_scale",
            "good_steps",
        )
