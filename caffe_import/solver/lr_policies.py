"""Learning rates by iteration: Caffe's seven policies as plain floats. The compiled step gets its rates from here.

Source: BVLC Caffe, SGDSolver::GetLearningRate. The iteration counts finished updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, inf
from typing import Final

from caffe_import.solver.solver_spec import SolverSpec


def learning_rate(spec: SolverSpec, iteration: int) -> float:
    """Return the rate of the update that follows ``iteration`` finished ones.

    Args:
        spec: The solver; its ``restored_step`` counts for multistep.
        iteration: Finished updates, 0 at the start.

    Example:
        >>> from caffe_import.files.prototxt import parse_solver
        >>> from caffe_import.solver.solver_spec import solver_spec
        >>> text = 'base_lr: 1 lr_policy: "multistep" gamma: 0.5 stepvalue: 3 stepvalue: 7 max_iter: 9'
        >>> [learning_rate(solver_spec(parse_solver(text)), i) for i in (0, 2, 3, 6, 7)]
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    if spec.lr_policy == "multistep":
        count = multistep_count(spec.stepvalue, iteration, current_step=spec.restored_step, since=spec.restored_at)
        return spec.base_lr * _power(spec.gamma, count)
    return _POLICIES[spec.lr_policy](spec, iteration)


def multistep_count(stepvalues: Sequence[int], iteration: int, *, current_step: int = 0, since: int = 0) -> int:
    """Return multistep's counter in Caffe at the computation of the rate of ``iteration``.

    Caffe moves the counter at most a step forward per update, so equal or falling stepvalues take an update each.

    Args:
        stepvalues: The solver's, in the file's order.
        iteration: Finished updates.
        current_step: The counter at ``since``, from a restored state.
        since: Iteration of the first update after the restoring; 0 for a fresh run.

    Example:
        >>> [multistep_count([2, 2, 4], i) for i in range(6)]
        [0, 0, 1, 2, 3, 3]
    """
    count = current_step
    earliest = since
    for value in stepvalues[current_step:]:
        passed_at = max(value, earliest)
        if passed_at > iteration:
            break
        count += 1
        earliest = passed_at + 1
    return count


def step_counter(spec: SolverSpec, finished: int) -> int:
    """Return ``current_step`` of a state saved after ``finished`` updates: what the last update's rate was made with.

    Only step and multistep move it; a state saved before any update holds what was restored.
    """
    if finished <= spec.restored_at:
        return spec.restored_step
    if spec.lr_policy == "step":
        return (finished - 1) // spec.stepsize
    if spec.lr_policy == "multistep":
        return multistep_count(spec.stepvalue, finished - 1, current_step=spec.restored_step, since=spec.restored_at)
    return spec.restored_step


def _power(base: float, exponent: float) -> float:
    """Return C's pow for a base of 0 or more: beyond the range of a double it is infinite instead of an error."""
    try:
        return float(base**exponent)
    except (OverflowError, ZeroDivisionError):
        return inf


def _fixed(spec: SolverSpec, iteration: int) -> float:
    return spec.base_lr


def _step(spec: SolverSpec, iteration: int) -> float:
    return spec.base_lr * _power(spec.gamma, iteration // spec.stepsize)


def _exp(spec: SolverSpec, iteration: int) -> float:
    return spec.base_lr * _power(spec.gamma, iteration)


def _inv(spec: SolverSpec, iteration: int) -> float:
    return spec.base_lr * _power(1.0 + spec.gamma * iteration, -spec.power)


def _poly(spec: SolverSpec, iteration: int) -> float:
    # Past max_iter (a state restored from a longer run) Caffe takes a power of a negative number; here the end holds.
    remaining = max(0.0, 1.0 - iteration / spec.max_iter)
    return spec.base_lr * _power(remaining, spec.power)


def _sigmoid(spec: SolverSpec, iteration: int) -> float:
    # exp overflows a double beyond 709; the rate is 0 to any precision long before.
    return spec.base_lr / (1.0 + exp(min(-spec.gamma * (iteration - spec.stepsize), 700.0)))


_POLICIES: Final[Mapping[str, Callable[[SolverSpec, int], float]]] = {
    "fixed": _fixed,
    "step": _step,
    "exp": _exp,
    "inv": _inv,
    "poly": _poly,
    "sigmoid": _sigmoid,
}
