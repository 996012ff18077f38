"""A solver's file with every net of the solver. Refuses what Caffe's Solver refuses of both together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from caffe_import.errors import PrototxtError
from caffe_import.file_access.relative_paths import find_relative
from caffe_import.files.prototxt import merge_solver, read_net, read_solver, read_text
from caffe_import.files.prototxt_errors import solver_field_error
from caffe_import.files.upgrade import upgrade_net
from caffe_import.proto import caffe_pb2
from caffe_import.solver.solver_spec import SolverSpec, solver_spec


@dataclass(frozen=True)
class LoadedSolver:
    """A solver with every net it names.

    Attributes:
        spec: The checked solver.
        train_net: The training net, unfiltered; build it with ``train_state``.
        train_state: Phase TRAIN, level and stages of net and solver together.
        test_nets: One per test net instance, in Caffe's order (test_net_param, test_net, then net or net_param).
        test_states: One per test net.
        net_path: File of the training net; None if the net is inside the solver.
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
    """Read a solver and the solver's nets, apply overrides, make every check without data.

    A relative path in the solver is looked for as ``relative_paths`` says.

    Args:
        path: The solver's prototxt.
        overrides: Prototxt text of solver fields that replace the file's, e.g. ``"max_iter: 100"``.

    Raises:
        PrototxtError: A file is missing or does not parse, or a value is refused; the message names it.
        NetError: A net's legacy form cannot be upgraded.
        ForbiddenPathError: The solver names a file outside of the allowed folders.
    """
    path = Path(path)
    message = read_solver(path)
    if overrides.strip():
        message = merge_solver(message, overrides)
    message = _without_idle_test_nets(_with_snapshot_prefix(message, path))
    sources = [("<solver overrides>", overrides), (str(path), read_text(path))]
    spec = solver_spec(message, path=str(path), sources=sources)
    finder = _NetFinder(message, path, sources)
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
    solver = caffe_pb2.SolverParameter()
    solver.CopyFrom(message)
    n_params, n_iters = len(message.test_net_param), len(message.test_iter)
    for index in reversed(range(n_iters)):
        if message.test_iter[index]:
            continue
        del solver.test_iter[index]
        if len(message.test_state) == n_iters:
            del solver.test_state[index]
        if index < n_params:
            del solver.test_net_param[index]
        elif index - n_params < len(message.test_net):
            del solver.test_net[index - n_params]
    return solver


def _state(
    phase: caffe_pb2.Phase, net: caffe_pb2.NetParameter, added: Sequence[caffe_pb2.NetState]
) -> caffe_pb2.NetState:
    """Solver::InitTrainNet and InitTestNets: phase, then the net's state, then the solver's, merged in this order."""
    state = caffe_pb2.NetState(phase=phase)
    state.MergeFrom(net.state)
    for more in added:
        state.MergeFrom(more)
    return state


_TRAIN_NET_FIELDS = ("net", "net_param", "train_net", "train_net_param")


class _NetFinder:
    """Finds the nets that a solver names (Solver::InitTrainNet, Solver::InitTestNets)."""

    def __init__(self, message: caffe_pb2.SolverParameter, path: Path, sources: Sequence[tuple[str, str]]) -> None:
        self._message = message
        self._path = path
        self._sources = sources

    def _refuse(self, finding: str) -> PrototxtError:
        return PrototxtError(f"{self._path}: {finding}", path=str(self._path))

    def _read(self, field_name: str, written: str) -> tuple[caffe_pb2.NetParameter, Path]:
        net_paths = find_relative(written, self._path, field_name=field_name)
        if net_paths is None:
            finding = (
                f'{field_name}: "{written}": no such file, neither from the working directory {Path.cwd()} '
                f"nor from the solver's folder {self._path.parent.resolve()} or one above it{self._namesake(written)}"
            )
            is_last = [written] == list(self._message.test_net[-1:]) or field_name != "test_net"
            raise solver_field_error(finding, field_name, self._sources if is_last else (), path=str(self._path))
        return read_net(net_paths[0]), net_paths[0]

    def _namesake(self, written: str) -> str:
        """Return a remedy if the solver's folder has a file of this name, as where the path is of another machine."""
        name = PureWindowsPath(written).name  # takes slashes of both kinds
        if not name or not (self._path.parent / name).is_file():
            return ""
        return f'; the solver\'s folder has "{name}": write this name'

    def train_net(self) -> tuple[caffe_pb2.NetParameter, Path | None]:
        message = self._message
        train_net_fields = [name for name in _TRAIN_NET_FIELDS if message.HasField(name)]
        if len(train_net_fields) != 1:
            finding = (
                f"names {', '.join(train_net_fields)} as training net; keep one of them"
                if train_net_fields
                else f"names no training net; give one of {', '.join(_TRAIN_NET_FIELDS)}"
            )
            raise self._refuse(finding)
        if train_net_fields[0] in ("net", "train_net"):
            return self._read(train_net_fields[0], getattr(message, train_net_fields[0]))
        return upgrade_net(getattr(message, train_net_fields[0])), None

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
            interval = f"{message.test_interval}" if message.HasField("test_interval") else "not given"
            finding = f"test_iter is given and test_interval is {interval}; give the updates between two tests"
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
        weight_paths = ((part, find_relative(part, self._path, field_name="weights")) for part in written)
        return [str(weight_path[0]) if weight_path else part for part, weight_path in weight_paths]
