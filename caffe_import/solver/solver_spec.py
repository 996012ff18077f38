"""A solver definition as a checked, frozen dataclass. Refuses what Caffe's Solver refuses.

The file and its nets are read in ``loaded_solver``; rates are in ``lr_policies``, update rules in ``update_rules``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal, cast

from caffe_import.errors import PrototxtError, did_you_mean
from caffe_import.files.prototxt_errors import solver_field_error
from caffe_import.proto import caffe_pb2, is_repeated
from caffe_import.solver.update_rules import RULES

SnapshotFormat = Literal["BINARYPROTO", "HDF5"]


POLICY_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "fixed": (),
    "step": ("gamma", "stepsize"),
    "exp": ("gamma",),
    "inv": ("gamma", "power"),
    "multistep": ("gamma",),
    "poly": ("power", "max_iter"),
    "sigmoid": ("gamma", "stepsize"),
}
"""Every lr_policy with the fields it needs. Caffe takes 0 for a missing field, which no user means.

``multistep`` without a stepvalue is a constant rate, as in Caffe.
"""


@dataclass(frozen=True)
class SolverSpec:
    """A checked solver; fields keep Caffe's names and defaults. Floats are float32 values, as Caffe holds them.

    Attributes:
        type: One of ``update_rules.RULES``.
        max_iter: Number of updates.
        iter_size: Forward-backward passes per update.
        clip_gradients: Largest L2 norm of all gradients together; negative: no clipping (0 makes every gradient 0).
        test_iter: Batches per test, one entry per test net, 1 or more from ``load_solver``, which leaves out the test
            nets with 0.
        test_interval: Updates between tests; 0: no tests.
        snapshot: Updates between snapshots; 0: only the last one, if ``snapshot_after_train``.
        snapshot_prefix: As given; empty only in a solver that came without a file and without a prefix.
        random_seed: -1: none given.
        message: The whole message after upgrade and overrides; shared, read it only.
        restored_step: In a run that goes on from a state: multistep's counter in it. It holds where stepvalues have
            changed since, as in Caffe.
        restored_at: Iteration of that state.
    """

    type: str
    base_lr: float
    lr_policy: str
    gamma: float
    power: float
    stepsize: int
    stepvalue: tuple[int, ...]
    max_iter: int
    iter_size: int
    momentum: float
    momentum2: float
    rms_decay: float
    delta: float
    weight_decay: float
    regularization_type: str
    clip_gradients: float
    display: int
    average_loss: int
    test_iter: tuple[int, ...]
    test_interval: int
    test_initialization: bool
    snapshot: int
    snapshot_prefix: str
    snapshot_format: SnapshotFormat
    snapshot_after_train: bool
    random_seed: int
    debug_info: bool
    message: caffe_pb2.SolverParameter
    restored_step: int = 0
    restored_at: int = 0


def solver_spec(
    message: caffe_pb2.SolverParameter, *, path: str = "<solver>", sources: Sequence[tuple[str, str]] = ()
) -> SolverSpec:
    """Return the checked spec of an upgraded message.

    Args:
        message: The solver.
        path: What errors call it.
        sources: (name, text) of what it was read from, overrides first; errors then show the line.

    Raises:
        PrototxtError: A field is missing, out of range, or does not go with the solver's type or policy.
    """
    check = _Checker(message, path, sources)
    check.choice("type", tuple(RULES))
    check.required("base_lr", "max_iter", "lr_policy")
    check.choice("lr_policy", tuple(POLICY_FIELDS))
    check.policy()
    check.numbers()
    check.choice("regularization_type", ("L1", "L2"))
    check.solver_type()
    return SolverSpec(
        type=message.type,
        base_lr=message.base_lr,
        lr_policy=message.lr_policy,
        gamma=message.gamma,
        power=message.power,
        stepsize=message.stepsize,
        stepvalue=tuple(message.stepvalue),
        max_iter=message.max_iter,
        iter_size=message.iter_size,
        momentum=message.momentum,
        momentum2=message.momentum2,
        rms_decay=message.rms_decay,
        delta=message.delta,
        weight_decay=message.weight_decay,
        regularization_type=message.regularization_type,
        clip_gradients=message.clip_gradients,
        display=message.display,
        average_loss=message.average_loss,
        test_iter=tuple(message.test_iter),
        test_interval=message.test_interval,
        test_initialization=message.test_initialization,
        snapshot=message.snapshot,
        snapshot_prefix=message.snapshot_prefix,
        snapshot_format=cast(SnapshotFormat, caffe_pb2.SolverParameter.SnapshotFormat.Name(message.snapshot_format)),
        snapshot_after_train=message.snapshot_after_train,
        random_seed=message.random_seed,
        debug_info=message.debug_info,
        message=message,
    )


_Claim = tuple[Callable[[float], bool], str]
_NOT_NEGATIVE: _Claim = (lambda value: value >= 0, "0 or more")
_AT_LEAST_ONE: _Claim = (lambda value: value >= 1, "1 or more")
_FRACTION: _Claim = (lambda value: 0 <= value < 1, "0 or more and below 1")
_CLAIMS: Final[Mapping[str, _Claim]] = {
    "base_lr": _NOT_NEGATIVE,
    "max_iter": _NOT_NEGATIVE,
    "iter_size": _AT_LEAST_ONE,
    "average_loss": _AT_LEAST_ONE,
    "momentum": _NOT_NEGATIVE,
    "delta": _NOT_NEGATIVE,
    "weight_decay": _NOT_NEGATIVE,
    "display": _NOT_NEGATIVE,
    "snapshot": _NOT_NEGATIVE,
    "test_interval": _NOT_NEGATIVE,
    "test_iter": _NOT_NEGATIVE,
    "stepvalue": _NOT_NEGATIVE,
}

_EXAMPLES: Final[Mapping[str, str]] = {
    "base_lr": "0.01",
    "max_iter": "10000",
    "lr_policy": "'fixed'",
    "gamma": "0.1",
    "power": "0.75",
    "stepsize": "5000",
    "stepvalue": "5000",
}
"""Field -> a value that a message shows where the field is missing."""


class _Checker:
    def __init__(self, message: caffe_pb2.SolverParameter, path: str, sources: Sequence[tuple[str, str]]) -> None:
        self._message = message
        self._path = path
        self._sources = sources

    def refuse(self, finding: str, name: str, allowed: Sequence[str] = ()) -> PrototxtError:
        return solver_field_error(finding, name, self._sources, path=self._path, allowed=allowed)

    def choice(self, name: str, allowed: Sequence[str]) -> None:
        value = getattr(self._message, name)
        if value not in allowed:
            finding = f'{name} is "{value}"; allowed: {", ".join(allowed)}{did_you_mean(value, allowed)}'
            raise self.refuse(finding, name, allowed)

    def required(self, *names: str, because: str = "", blamed: str = "") -> None:
        for name in names:
            field = caffe_pb2.SolverParameter.DESCRIPTOR.fields_by_name[name]
            is_given = len(getattr(self._message, name)) > 0 if is_repeated(field) else self._message.HasField(name)
            if not is_given:
                finding = f'{name} is not given{because}; add a line such as "{name}: {_EXAMPLES[name]}"'
                raise solver_field_error(finding, blamed or name, self._sources, path=self._path, at_end=True)

    def claim(self, name: str, claim: _Claim, because: str = "") -> None:
        holds, allowed = claim
        value = getattr(self._message, name)
        for item in [value] if isinstance(value, int | float) else value:
            if not holds(item):
                finding = f"{name}={item:g}; allowed: {allowed}{because}"
                raise self.refuse(finding, name, [allowed])

    def numbers(self) -> None:
        for descriptor, value in self._message.ListFields():
            if isinstance(value, float) and not isfinite(value):
                finding = f"{descriptor.name}={value}; allowed: a finite number"
                raise self.refuse(finding, descriptor.name)
        for name, claim in _CLAIMS.items():
            self.claim(name, claim)

    def policy(self) -> None:
        policy = self._message.lr_policy
        because = f'; lr_policy "{policy}" needs it'
        self.required(*POLICY_FIELDS[policy], because=because, blamed="lr_policy")
        if "stepsize" in POLICY_FIELDS[policy]:
            self.claim("stepsize", _AT_LEAST_ONE, because)
        if "gamma" in POLICY_FIELDS[policy] and policy != "sigmoid":  # a sigmoid with a negative gamma falls
            self.claim("gamma", _NOT_NEGATIVE, f' for lr_policy "{policy}"')
        if policy == "poly":
            self.claim("max_iter", _AT_LEAST_ONE, because)

    def solver_type(self) -> None:
        """Refuse values as the constructors of Caffe's solvers do, and refuse divisors of zero."""
        message = self._message
        if message.momentum != 0 and not RULES[message.type].takes_momentum:
            finding = f"momentum={message.momentum:g}; {message.type} has no momentum; allowed: 0"
            raise self.refuse(finding, "momentum")
        if message.type == "RMSProp":
            self.claim("rms_decay", _FRACTION)
        if message.type == "Adam":
            self.claim("momentum", _FRACTION, " for Adam")
            self.claim("momentum2", _FRACTION, " for Adam")
