"""The nets of a solver with the nets' files: file, line and column of a layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from caffe_import.errors import NetError
from caffe_import.file_access.relative_paths import find_relative
from caffe_import.files.prototxt import read_text
from caffe_import.files.prototxt_scan import Block, Scan, layer_of, line_and_column, scan_prototxt
from caffe_import.net.blob_memory import overwritten_blobs
from caffe_import.net.layer_registry import Phase
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.phases import filter_layers
from caffe_import.proto import caffe_pb2
from caffe_import.solver.loaded_solver import LoadedSolver


class NetFile:
    """One net's file as text. Reads and scans it when a place is asked for."""

    def __init__(self, path: Path) -> None:
        """Remember the file."""
        self.path = path

    @cached_property
    def _text(self) -> str:
        return read_text(self.path)

    @cached_property
    def _scan(self) -> Scan:
        return scan_prototxt(self._text)

    def position(self, layer: str, *, occurrence: int = 0, field_name: str = "") -> tuple[int, int] | None:
        """Return line and column of a layer, or of a field's value in the layer; None if the text has no such layer.

        Args:
            layer: Its name.
            occurrence: Which of the layers of this name, counted from 0.
            field_name: A field of the layer itself; without it, or without a value, the layer's beginning.
        """
        blocks = [block for block in self._scan.blocks if block.label == layer and layer_of(block)[0] is block]
        if occurrence >= len(blocks):
            return None
        block = blocks[occurrence]
        return line_and_column(self._text, self._value_start(block, field_name))

    def _value_start(self, block: Block, field_name: str) -> int:
        for token in self._scan.tokens:
            if token.block is block and token.field_name == field_name and token.role == "value":
                return token.start
        return block.start


@dataclass(frozen=True)
class FilePosition:
    """A position in a file; line and column count from 1."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        """Return file:line:column."""
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True)
class SolverNet:
    """A net of a solver before building.

    Attributes:
        title: ``train``, ``test``, or of several test nets ``test 0``, ``test 1``, ...
        phase: Phase it is built for.
        message: The net, upgraded.
        state: Phase, level and stages for its rules.
        file: Where it comes from; None if it is inside the solver.
    """

    title: str
    phase: Phase
    message: caffe_pb2.NetParameter
    state: caffe_pb2.NetState
    file: NetFile | None

    def position(self, layer: str, *, field_name: str = "") -> FilePosition | None:
        """Return the position of a layer, or of a field's value in the layer; None if no file has the layer."""
        if self.file is None or not layer:
            return None
        occurrence = _occurrence_of(layer, self.message, self.state)
        location = self.file.position(layer, occurrence=occurrence, field_name=field_name)
        return FilePosition(str(self.file.path), *location) if location else None

    def finding(self, error: Exception) -> tuple[str, FilePosition | None]:
        """Return what is wrong with the net, the net's title and the place of the layer to blame before it."""
        location = self.position(error.layer, field_name=error.field_name) if isinstance(error, NetError) else None
        return self._placed(str(error), location), location

    def shared_memory(self, net: NetSpec) -> list[tuple[str, FilePosition | None]]:
        """Return a note for each place where Caffe's shared memory makes its numbers differ from ours."""
        findings = [(str(overwritten), self.position(overwritten.layer)) for overwritten in overwritten_blobs(net)]
        return [(self._placed(text, location), location) for text, location in findings]

    def _placed(self, text: str, location: FilePosition | None) -> str:
        return f"{self.title} net: {f'{location}: ' if location else ''}{text}"

    @contextmanager
    def errors_placed(self) -> Iterator[None]:
        """Add net, file and line to the errors of a layer.

        Raises:
            NetError: As the block raised it, with the text of ``finding``.
        """
        try:
            yield
        except NetError as error:
            if not error.layer:
                raise
            raise NetError(self.finding(error)[0], layer=error.layer, field_name=error.field_name) from error


def solver_nets(solver: LoadedSolver, path: Path) -> tuple[SolverNet, ...]:
    """Return the nets of the solver that was read from ``path``: the training net, then the test nets."""
    train_file, test_files = _net_files(solver, path)
    nets = [SolverNet("train", "TRAIN", solver.train_net, solver.train_state, train_file)]
    for index, parts in enumerate(zip(solver.test_nets, solver.test_states, test_files, strict=True)):
        nets.append(SolverNet("test" if len(test_files) == 1 else f"test {index}", "TEST", *parts))
    return tuple(nets)


def _occurrence_of(layer: str, net: caffe_pb2.NetParameter, state: caffe_pb2.NetState) -> int:
    """Return the number of the phase's layer among layers of equal name: often each phase has a data layer."""
    named = [message for message in net.layer if message.name == layer]
    phase: Phase = "TRAIN" if state.phase == caffe_pb2.TRAIN else "TEST"
    for index, message in enumerate(named):
        single_layer_net = caffe_pb2.NetParameter(layer=[message], state=net.state)
        try:
            filtered_net = filter_layers(single_layer_net, phase=phase, level=state.level, stages=tuple(state.stage))
        except NetError:
            return index  # the layer to blame: it has rules of both kinds
        if len(filtered_net.layer):
            return index
    return 0


def _net_files(solver: LoadedSolver, path: Path) -> tuple[NetFile | None, tuple[NetFile | None, ...]]:
    message = solver.spec.message
    train = NetFile(solver.net_path) if solver.net_path is not None else None
    tests: list[NetFile | None] = [None] * len(message.test_net_param)
    for written in message.test_net:
        net_paths = find_relative(written, path, field_name="test_net")
        tests.append(NetFile(net_paths[0]) if net_paths else None)
    generic = train if message.HasField("net") else None
    return train, (*tests, *[generic] * (len(solver.test_nets) - len(tests)))
