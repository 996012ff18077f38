"""Caffe's six update rules, each a pure function on one blob, written once for TensorFlow and for numpy.

A worker's graph traces the rules on tensors (``tf_graph/step``), the exchange server runs the rules on arrays.
``Operations`` holds the functions with different names in both. Summing over iter_size, clipping and dividing precede
the rules. Weight decay is a separate term, because linear rules add all terms in a single pass over memory. Source for
all: BVLC Caffe @9b89154, src/caffe/solvers/<type>_solver.cpp, ``ComputeUpdateValue``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

Array = Any
"""A float32 tensor or array, or a float32 scalar of the same library; Python's numbers do not change its dtype."""


@dataclass(frozen=True)
class Operations:
    """Functions with different names in TensorFlow and numpy.

    Attributes:
        sqrt: Element by element.
        square: Element by element.
        sign: Element by element, 0 for 0.
        add: The sum of a list of arrays of one shape. It may write to the first.
        float64: A number as float64 scalar.
        float32: A float64 scalar as float32.
    """

    sqrt: Callable[[Array], Array]
    square: Callable[[Array], Array]
    sign: Callable[[Array], Array]
    add: Callable[[list[Array]], Array]
    float64: Callable[[Any], Any]
    float32: Callable[[Any], Array]


class SolverConstants(Protocol):
    """The constants of a solver, named as in the prototxt; ``SolverSpec`` is one."""

    @property
    def momentum(self) -> float:
        """Of SGD and Nesterov; Adam's first decay; AdaDelta's decay."""

    @property
    def momentum2(self) -> float:
        """Adam's second decay."""

    @property
    def rms_decay(self) -> float:
        """RMSProp's decay."""

    @property
    def delta(self) -> float:
        """Constant that keeps a divisor from 0."""

    @property
    def regularization_type(self) -> str:
        """``L1`` or ``L2``."""


@dataclass(frozen=True)
class UpdateRequest:
    """Update of a blob, or of a part of a blob. Its arrays are not written.

    Attributes:
        ops: TensorFlow's or numpy's.
        weights: The blob before the update; any shape, float32.
        gradient: Its gradient after clipping and division by iter_size, without decay; the same shape.
        decay: weight_decay times the blob's decay_mult; 0 for none.
        slots: The rule's history of this blob, one array of the same shape per slot.
        rate: learning rate times the blob's lr_mult; float32 scalar.
        update: Which update it is, 1 for the first; an integer.
        solver: The constants.
    """

    ops: Operations
    weights: Array
    gradient: Array
    decay: float
    slots: tuple[Array, ...]
    rate: Array
    update: Any
    solver: SolverConstants

    @property
    def decay_term(self) -> Array:
        """Decay's term of the gradient, times ``decay``: the weights (L2) or their signs (L1)."""
        return self.weights if self.solver.regularization_type == "L2" else self.ops.sign(self.weights)

    @property
    def decayed_gradient(self) -> Array:
        """The gradient with decay, for rules not linear in the gradient."""
        return self.gradient if self.decay == 0 else self.gradient + self.decay * self.decay_term

    def moved_history(self) -> Array:
        """Return momentum h + rate (g + decay): Caffe's history of SGD and Nesterov, added up in one pass."""
        terms = [self.rate * self.gradient]
        if self.solver.momentum != 0:
            terms.append(self.solver.momentum * self.slots[0])
        if self.decay != 0:
            terms.append(self.rate * self.decay * self.decay_term)
        return self.ops.add(terms)


@dataclass(frozen=True)
class Update:
    """A rule's answer: ``step`` is subtracted from the blob, ``slots`` is the history from now on."""

    step: Array
    slots: tuple[Array, ...]


def sgd(request: UpdateRequest) -> Update:
    """Return h' = momentum h + rate g; the step is h'.

    The rate is inside the history, so a change of the rate acts late: the old rate scaled the content of h. Frameworks
    that compute w -= rate h act at once and differ after every change.
    """
    history = request.moved_history()
    return Update(history, (history,))


def nesterov(request: UpdateRequest) -> Update:
    """Return h' = momentum h + rate g; the step is (1 + momentum) h' - momentum h. The rate is inside h, as in SGD.

    Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning", in the form whose
    parameters are the look-ahead point.
    """
    momentum, (history,) = request.solver.momentum, request.slots
    moved = request.moved_history()
    return Update((1 + momentum) * moved - momentum * history, (moved,))


def adagrad(request: UpdateRequest) -> Update:
    """Return h' = h + g**2; the step is rate g / (sqrt(h') + delta), with delta outside the root.

    Duchi, Hazan, Singer 2011, "Adaptive subgradient methods".
    """
    gradient = request.decayed_gradient
    summed = request.slots[0] + request.ops.square(gradient)
    return Update(request.rate * gradient / (request.ops.sqrt(summed) + request.solver.delta), (summed,))


def rmsprop(request: UpdateRequest) -> Update:
    """Return h' = rms_decay h + (1 - rms_decay) g**2; the step is rate g / (sqrt(h') + delta), delta outside the root.

    Tieleman, Hinton 2012, lecture 6.5.
    """
    gradient, decay = request.decayed_gradient, request.solver.rms_decay
    averaged = decay * request.slots[0] + (1 - decay) * request.ops.square(gradient)
    return Update(request.rate * gradient / (request.ops.sqrt(averaged) + request.solver.delta), (averaged,))


def adadelta(request: UpdateRequest) -> Update:
    """Return both averages and the step rate v, with v = g sqrt((U + delta) / (G' + delta)), delta inside the root.

    G' averages g**2, U' averages v**2; the solver's momentum is their decay. The rate does not enter U, so base_lr is
    a plain factor on the step. Slots: G, then U.

    Zeiler 2012, "ADADELTA: an adaptive learning rate method", algorithm 1.
    """
    decay, delta, ops = request.solver.momentum, request.solver.delta, request.ops
    gradient = request.decayed_gradient
    gradients, updates = request.slots
    gradients = decay * gradients + (1 - decay) * ops.square(gradient)
    value = gradient * ops.sqrt((updates + delta) / (gradients + delta))
    updates = decay * updates + (1 - decay) * ops.square(value)
    return Update(request.rate * value, (gradients, updates))


def adam(request: UpdateRequest) -> Update:
    """Return m', v' and the step rate sqrt(1 - b2**t) / (1 - b1**t) m' / (sqrt(v') + delta).

    b1 is momentum, b2 momentum2, t counts updates from 1. Slots: m, then v. Kingma, Ba 2015, with the correction
    moved into the rate (their section 2), so delta is added to the *uncorrected* root.
    """
    first_decay, second_decay, ops = request.solver.momentum, request.solver.momentum2, request.ops
    gradient = request.decayed_gradient
    first, second = request.slots
    first = first_decay * first + (1 - first_decay) * gradient
    second = second_decay * second + (1 - second_decay) * ops.square(gradient)
    # In float64, as Caffe's pow: in float32, 1 - 0.999**1 would be off by 1e-5.
    t = ops.float64(request.update)
    correction = ops.sqrt(1 - second_decay**t) / (1 - first_decay**t)
    rate = request.rate * ops.float32(correction)
    return Update(rate * first / (ops.sqrt(second) + request.solver.delta), (first, second))


@dataclass(frozen=True)
class SolverRule:
    """A solver type.

    Attributes:
        compute_update: The rule.
        n_slots: Vectors of history that it keeps; their order is that of Caffe's .solverstate.
        takes_momentum: False where Caffe refuses any momentum but zero.
        rate_in_history: Is the history scaled by the rate?
    """

    compute_update: Callable[[UpdateRequest], Update]
    n_slots: int = 1
    takes_momentum: bool = True
    rate_in_history: bool = False


RULES: Final[Mapping[str, SolverRule]] = {
    "SGD": SolverRule(sgd, rate_in_history=True),
    "Nesterov": SolverRule(nesterov, rate_in_history=True),
    "AdaGrad": SolverRule(adagrad, takes_momentum=False),
    "RMSProp": SolverRule(rmsprop, takes_momentum=False),
    "AdaDelta": SolverRule(adadelta, n_slots=2),
    "Adam": SolverRule(adam, n_slots=2),
}
"""Every solver type of Caffe 1.0."""
