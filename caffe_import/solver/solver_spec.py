"""A solver definition as frozen, checked facts, and the nets that it names. Says what Caffe's Solver would refuse.

No optimiser arithmetic here: rates are in ``lr_policies``, update rules in ``update_rules``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Final, Literal, cast

from caffe_import.errors import PrototxtError, did_you_mean
from caffe_import.files.prototxt import merge_solver, read_net, read_solver, read_text, solver_field_error
from caffe_import.files.relative_paths import find_relative
from caffe_import.files.upgrade import upgrade_net
from caffe_import.proto import caffe_pb2, is_repeated
from caffe_import.solver.update_rules import RULES

SnapshotFormat = Literal["BINARYPROTO", "HDF5"]


POLICY_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "fixed": (),
    "step": ("gamma", "stepsize"),
    "exp": ("gamma",),
    "inv": ("gamma", "power"),
    "multistep": ("gamma", "stepvalue"),
    "poly": ("power", "max_iter"),
    "sigmoid": ("gamma", "stepsize"),
}
"""Every lr_policy with the fields it needs. Caffe takes 0 for a missing one, which is never meant."""


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


@dataclass(frozen=True)
class LoadedSolver:
    """A solver with every net it names.

    Attributes:
        spec: The checked solver.
        train_net: The training net, unfiltered; build it with ``train_state``.
        train_state: Phase TRAIN, level and stages of net and solver together.
        test_nets: One per test net instance, in Caffe's order (test_net_param, test_net, then net or net_param).
        test_states: One per test net.
        net_path: File of the training net; None if it stands inside the solver.
        weights: Files to start from, resolved where they exist, else as written.
    """

    spec: SolverSpec
    train_net: caffe_pb2.NetParameter
    train_state: caffe_pb2.NetState
    test_nets: tuple[caffe_pb2.NetParameter, ...]
    test_states: tuple[caffe_pb2.NetState, ...]
    net_path: Path | None
    weights: tuple[str, ...]


def load_solver(path: Path, overrides: str = "") -> LoadedSolver:
    """Read a solver and the nets it names, apply overrides, check everything that can be checked without data.

    A relative path in the solver is looked for as ``relative_paths`` says.

    Args:
        path: The solver's prototxt.
        overrides: Prototxt text of solver fields that replace the file's, e.g. ``"max_iter: 100"``.

    Raises:
        PrototxtError: A file is missing or does not parse, or a value is refused; the message names it.
        NetError: A net's legacy form cannot be upgraded.
    """
    path = Path(path)
    message = read_solver(path)
    if overrides.strip():
        message = merge_solver(message, overrides)
    message = _without_idle_test_nets(_with_snapshot_prefix(message, path))
    spec = solver_spec(
        message, path=str(path), sources=[("<solver overrides>", overrides), (str(path), read_text(path))]
    )
    finder = _NetFinder(message, path)
    train_net, net_path = finder.train_net()
    test_nets = finder.test_nets(train_net if message.HasField("net") else None)
    return LoadedSolver(
        spec=spec,
        train_net=train_net,
        train_state=_state(caffe_pb2.TRAIN, train_net, [message.train_state]),
        test_nets=test_nets,
        test_states=tuple(
            _state(caffe_pb2.TEST, net, message.test_state[index : index + 1]) for index, net in enumerate(test_nets)
        ),
        net_path=net_path,
        weights=tuple(finder.weights()),
    )


def _with_snapshot_prefix(message: caffe_pb2.SolverParameter, path: Path) -> caffe_pb2.SolverParameter:
    """UpgradeSnapshotPrefixProperty: a missing prefix is the solver's path, a folder gets the solver's name."""
    if not message.HasField("snapshot_prefix"):
        prefix = str(path.with_suffix(""))
    elif Path(message.snapshot_prefix).is_dir():
        prefix = str(Path(message.snapshot_prefix) / path.stem)
    else:
        return message
    completed = caffe_pb2.SolverParameter()
    completed.CopyFrom(message)
    completed.snapshot_prefix = prefix
    return completed


def _without_idle_test_nets(message: caffe_pb2.SolverParameter) -> caffe_pb2.SolverParameter:
    """Leave out the test nets whose test_iter is 0: Caffe runs no batch of theirs and reports nothing."""
    if 0 not in message.test_iter:
        return message
    kept = caffe_pb2.SolverParameter()
    kept.CopyFrom(message)
    n_params, n_iters = len(message.test_net_param), len(message.test_iter)
    for index in reversed(range(n_iters)):
        if message.test_iter[index]:
            continue
        del kept.test_iter[index]
        if len(message.test_state) == n_iters:
            del kept.test_state[index]
        if index < n_params:
            del kept.test_net_param[index]
        elif index - n_params < len(message.test_net):
            del kept.test_net[index - n_params]
    return kept


def _state(
    phase: caffe_pb2.Phase, net: caffe_pb2.NetParameter, added: Sequence[caffe_pb2.NetState]
) -> caffe_pb2.NetState:
    """Solver::InitTrainNet and InitTestNets: phase, then the net's state, then the solver's, merged in this order."""
    state = caffe_pb2.NetState(phase=phase)
    state.MergeFrom(net.state)
    for more in added:
        state.MergeFrom(more)
    return state


def solver_spec(
    message: caffe_pb2.SolverParameter, *, path: str = "<solver>", sources: Sequence[tuple[str, str]] = ()
) -> SolverSpec:
    """Return the checked spec of an upgraded message.

    Args:
        message: The solver.
        path: What errors call it.
        sources: (name, text) of what it was read from, the last word first; errors then show the line.

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
        found = getattr(self._message, name)
        if found not in allowed:
            finding = f'{name} is "{found}"; allowed: {", ".join(allowed)}{did_you_mean(found, allowed)}'
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
        if "gamma" in POLICY_FIELDS[policy]:
            self.claim("gamma", _NOT_NEGATIVE)
        if policy == "poly":
            self.claim("max_iter", _AT_LEAST_ONE, because)

    def solver_type(self) -> None:
        """What the constructors of Caffe's solvers refuse, and what would divide by zero in them."""
        message = self._message
        if message.momentum != 0 and not RULES[message.type].takes_momentum:
            finding = f"momentum={message.momentum:g}; {message.type} knows none, allowed: 0"
            raise self.refuse(finding, "momentum")
        if message.type == "RMSProp":
            self.claim("rms_decay", _FRACTION)
        if message.type == "Adam":
            self.claim("momentum", _FRACTION, " for Adam")
            self.claim("momentum2", _FRACTION, " for Adam")


_TRAIN_NET_FIELDS = ("net", "net_param", "train_net", "train_net_param")


class _NetFinder:
    """Finds the nets that a solver names (Solver::InitTrainNet, Solver::InitTestNets)."""

    def __init__(self, message: caffe_pb2.SolverParameter, path: Path) -> None:
        self._message = message
        self._path = path

    def _refuse(self, finding: str) -> PrototxtError:
        return PrototxtError(f"{self._path}: {finding}", path=str(self._path))

    def _read(self, field_name: str, written: str) -> tuple[caffe_pb2.NetParameter, Path]:
        found = find_relative(written, self._path)
        if found is None:
            finding = (
                f'{field_name}: "{written}": no such file, neither from the working directory {Path.cwd()} '
                f"nor from the solver's folder {self._path.parent.resolve()} or one above it"
            )
            raise self._refuse(finding)
        return read_net(found[0]), found[0]

    def train_net(self) -> tuple[caffe_pb2.NetParameter, Path | None]:
        message = self._message
        given = [name for name in _TRAIN_NET_FIELDS if message.HasField(name)]
        if len(given) != 1:
            finding = (
                f"names {', '.join(given)} as training net; keep one of them"
                if given
                else f"names no training net; give one of {', '.join(_TRAIN_NET_FIELDS)}"
            )
            raise self._refuse(finding)
        if given[0] in ("net", "train_net"):
            return self._read(given[0], getattr(message, given[0]))
        return upgrade_net(getattr(message, given[0])), None

    def test_nets(self, shared: caffe_pb2.NetParameter | None) -> tuple[caffe_pb2.NetParameter, ...]:
        """Return one message per test net; ``shared`` is the net of field ``net``, read already."""
        message = self._message
        generic = shared if shared is not None else self._generic_param()
        n_named = len(message.test_net_param) + len(message.test_net)
        n_iters = len(message.test_iter)
        if generic is None and n_iters != n_named:
            finding = f"{n_iters} test_iter for {n_named} test nets; give one test_iter per test net"
            raise self._refuse(finding)
        if n_iters < n_named:
            finding = f"{n_iters} test_iter for {n_named} test nets; give at least one test_iter per test net"
            raise self._refuse(finding)
        if n_iters > 0 and message.test_interval <= 0:
            finding = "test_iter is given but test_interval is not; give the updates between two tests"
            raise self._refuse(finding)
        if len(message.test_state) not in (0, n_iters):
            finding = f"{len(message.test_state)} test_state for {n_iters} test nets; give none or one per test net"
            raise self._refuse(finding)
        nets = [upgrade_net(net) for net in message.test_net_param]
        nets += [self._read("test_net", written)[0] for written in message.test_net]
        if generic is not None:
            nets += [generic] * (n_iters - n_named)
        return tuple(nets)

    def _generic_param(self) -> caffe_pb2.NetParameter | None:
        return upgrade_net(self._message.net_param) if self._message.HasField("net_param") else None

    def weights(self) -> list[str]:
        """Caffe's ``weights``: repeated, each a comma-separated list of files."""
        written = [part.strip() for entry in self._message.weights for part in entry.split(",") if part.strip()]
        found = ((part, find_relative(part, self._path)) for part in written)
        return [str(place[0]) if place else part for part, place in found]
