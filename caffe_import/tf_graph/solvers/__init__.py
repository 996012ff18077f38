"""Caffe's update rules, one file per solver type; each is a pure function on one blob's tensors.

What all rules share happens before them, in ``step_graph``: summing over iter_size, clipping, dividing. Weight decay
comes as a term of its own, since rules that are linear in the gradient add all their terms in one pass over memory.
A rule answers with the step to subtract. Source for all: BVLC Caffe @9b89154, src/caffe/solvers/<type>_solver.cpp,
``ComputeUpdateValue``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module

import tensorflow as tf

from caffe_import.errors import CaffeImportError, did_you_mean
from caffe_import.solver.solver_spec import SolverSpec


@dataclass(frozen=True)
class UpdateRequest:
    """One blob's update.

    Attributes:
        gradient: The blob's gradient after clipping and division by iter_size, without decay; any shape, float32.
        decay_term: What decay adds to it, times ``decay``: the weights (L2) or their signs (L1).
        decay: weight_decay times the blob's decay_mult; 0 for none.
        slots: The rule's history of this blob, one tensor of the same shape per slot.
        rate: learning rate times the blob's lr_mult; float32 scalar.
        update: Which update of this worker it is, 1 for the first; int64 scalar.
        solver: The constants (momentum, delta, ...).
    """

    gradient: tf.Tensor
    decay_term: tf.Tensor
    decay: float
    slots: tuple[tf.Tensor, ...]
    rate: tf.Tensor
    update: tf.Tensor
    solver: SolverSpec

    @property
    def decayed_gradient(self) -> tf.Tensor:
        """The gradient with decay, for rules that are not linear in it."""
        return self.gradient if self.decay == 0 else self.gradient + self.decay * self.decay_term

    def moved_history(self) -> tf.Tensor:
        """Return momentum h + rate (g + decay): Caffe's history of SGD and Nesterov, added up in one pass."""
        terms = [self.rate * self.gradient]
        if self.solver.momentum != 0:
            terms.append(self.solver.momentum * self.slots[0])
        if self.decay != 0:
            terms.append(self.rate * self.decay * self.decay_term)
        return tf.add_n(terms)


@dataclass(frozen=True)
class Update:
    """A rule's answer: ``step`` is subtracted from the blob, ``slots`` is the history from now on."""

    step: tf.Tensor
    slots: tuple[tf.Tensor, ...]


ComputeUpdate = Callable[[UpdateRequest], Update]


@dataclass(frozen=True)
class SolverRule:
    """A registered solver type.

    Attributes:
        name: Caffe's name of the type.
        n_slots: Vectors of history that it keeps; their order is that of Caffe's .solverstate.
        takes_momentum: False where Caffe refuses any momentum but zero.
        compute_update: The rule.
    """

    name: str
    n_slots: int
    takes_momentum: bool
    compute_update: ComputeUpdate


_RULES: dict[str, SolverRule] = {}


def solver_rule(name: str, *, n_slots: int, takes_momentum: bool = True) -> Callable[[ComputeUpdate], ComputeUpdate]:
    """Register the decorated function as the rule of solver type ``name``.

    Raises:
        ValueError: The type already has a rule.
    """

    def register(compute_update: ComputeUpdate) -> ComputeUpdate:
        known = _RULES.get(name)
        if known is not None and known.compute_update is not compute_update:
            msg = f"solver type {name} has two rules: {known.compute_update.__module__} and {compute_update.__module__}"
            raise ValueError(msg)
        _RULES[name] = SolverRule(name, n_slots, takes_momentum, compute_update)
        return compute_update

    return register


@cache
def _load_rules() -> None:
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def registered_rules() -> Mapping[str, SolverRule]:
    """Return every rule by solver type, sorted."""
    _load_rules()
    return dict(sorted(_RULES.items()))


def find_rule(solver: SolverSpec) -> SolverRule:
    """Return the rule of ``solver.type``.

    Raises:
        CaffeImportError: No such type, or a momentum that the type refuses.
    """
    rules = registered_rules()
    if solver.type not in rules:
        msg = f'solver type "{solver.type}" is not known; allowed: {", ".join(rules)}{did_you_mean(solver.type, rules)}'
        raise CaffeImportError(msg)
    rule = rules[solver.type]
    if solver.momentum != 0 and not rule.takes_momentum:
        msg = f"momentum={solver.momentum:g}: solver type {rule.name} allows 0 only; remove the line"
        raise CaffeImportError(msg)
    return rule
