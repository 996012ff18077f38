"""Dynamic loss scaling for float16: a factor on the loss, so that small gradients do not become zero.

Micikevicius et al., "Mixed precision training" (2018), section 3.2: the gradients of the scaled loss are divided by the
scale before clipping and update. A gradient that is not finite halves the scale; many good steps in a row double the
scale. Scales are powers of two, so scaling rounds nothing. No framework: the graph follows the rule by ``next_scale``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

START: Final = 2.0**15
DOUBLED_AFTER: Final = 2000
LOWEST: Final = 2.0**-24
HIGHEST: Final = 2.0**24


def next_scale(scale: Any, good_steps: Any, is_finite: Any, where: Callable[..., Any]) -> tuple[Any, Any]:
    """Return scale and count of good steps after a step.

    Args:
        scale: Float scalar that the step was computed with.
        good_steps: Integer scalar: steps in a row with a finite gradient at this scale, before the step.
        is_finite: Boolean scalar: was the step's gradient finite?
        where: ``np.where`` or ``tf.where``: (condition, if true, if false).
    """
    counted = where(is_finite, good_steps + 1, 0 * good_steps)
    is_due = counted >= DOUBLED_AFTER
    doubled = where(scale < HIGHEST, scale * 2, scale)
    halved = where(scale > LOWEST, scale / 2, scale)
    return where(is_finite, where(is_due, doubled, scale), halved), where(is_due, 0 * counted, counted)


@dataclass(frozen=True)
class LossScale:
    """The scale, as a worker's training state keeps it.

    Attributes:
        scale: Factor on the loss of the next step, a power of two from 2**-24 to 2**24.
        good_steps: Steps in a row with a finite gradient since the scale last changed.
    """

    scale: float = START
    good_steps: int = 0

    def advanced(self, *, is_finite: bool) -> LossScale:
        """Return the scale after a step whose gradient was finite, or not."""
        scale, good_steps = next_scale(self.scale, self.good_steps, is_finite, np.where)
        return LossScale(float(scale), int(good_steps))


@dataclass(frozen=True)
class StepScales:
    """Loss scales in consecutive steps.

    Attributes:
        begun: float32 (n_steps,): the scale that each step began with.
        updated: bool (n_steps,): was there a finite gradient, and so an update?
        ended: float32 (n_steps,): the scale after each step.
    """

    begun: npt.NDArray[np.float32]
    updated: npt.NDArray[np.bool_]
    ended: npt.NDArray[np.float32]

    @classmethod
    def joined(cls, parts: Sequence[StepScales]) -> StepScales:
        """Return the steps of all parts, one after another."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("begun", "updated", "ended")))

    def note(self, offset: int) -> str | None:
        """Return a log line for a step; None if the scale stayed."""
        begun, ended = float(self.begun[offset]), float(self.ended[offset])
        if not self.updated[offset]:
            return f"loss_scale {begun:g} -> {ended:g}: the gradient is not finite in float16, so no update is made"
        if ended < begun:
            return f"loss_scale {begun:g} -> {ended:g}: the gradient was not finite in float16 and was computed again"
        if ended > begun:
            return f"loss_scale {begun:g} -> {ended:g}: {DOUBLED_AFTER} steps in a row had a finite gradient"
        return None

    def is_exhausted(self, offset: int) -> bool:
        """Was a step's gradient not finite even at the lowest scale? A smaller scale does not help then."""
        return not self.updated[offset] and float(self.begun[offset]) <= LOWEST
