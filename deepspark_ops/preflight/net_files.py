"""The files that a solver's nets come from: in which form they are written, and where in them a layer stands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from caffe_import.errors import CaffeImportError
from caffe_import.layer_registry import Phase
from caffe_import.phases import filter_layers
from caffe_import.proto import caffe_pb2
from caffe_import.prototxt import read_net_form, read_solver_upgrades, read_text
from caffe_import.prototxt_scan import Block, Scan, layer_of, line_and_column, scan_prototxt
from caffe_import.relative_paths import find_relative
from caffe_import.solver_spec import LoadedSolver
from caffe_import.upgrade import net_form
from deepspark_ops.preflight.report import FormatReport


class NetFile:
    """One net's file as text. Reads and scans it when a place is asked for."""

    def __init__(self, path: Path) -> None:
        """Say which file."""
        self.path = path

    @cached_property
    def _text(self) -> str:
        return read_text(self.path)

    @cached_property
    def _scan(self) -> Scan:
        return scan_prototxt(self._text)

    def place(self, layer: str, *, occurrence: int = 0, field_name: str = "") -> tuple[int, int] | None:
        """Return line and column of a layer, or of a field's value in it; None if the text does not have it.

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
        for place in self._scan.places:
            if place.block is block and place.field_name == field_name and place.role == "value":
                return place.start
        return block.start


def occurrence_of(layer: str, net: caffe_pb2.NetParameter, state: caffe_pb2.NetState) -> int:
    """Return which of the layers of one name is in the net for a phase: data layers often have one for each."""
    named = [message for message in net.layer if message.name == layer]
    phase: Phase = "TRAIN" if state.phase == caffe_pb2.TRAIN else "TEST"
    for index, message in enumerate(named):
        alone = caffe_pb2.NetParameter(layer=[message], state=net.state)
        if len(filter_layers(alone, phase=phase, level=state.level, stages=tuple(state.stage)).layer):
            return index
    return 0


def net_files(solver: LoadedSolver, path: Path) -> tuple[NetFile | None, tuple[NetFile | None, ...]]:
    """Return the training net's file and each test net's; None for a net that stands in the solver."""
    message = solver.spec.message
    train = NetFile(solver.net_path) if solver.net_path is not None else None
    tests: list[NetFile | None] = [None] * len(message.test_net_param)
    for written in message.test_net:
        found = find_relative(written, path)
        tests.append(NetFile(found[0]) if found else None)
    generic = train if message.HasField("net") else None
    return train, (*tests, *[generic] * (len(solver.test_nets) - len(tests)))


def net_formats(solver: LoadedSolver, path: Path, files: Sequence[NetFile | None]) -> tuple[FormatReport, ...]:
    """Return the form of every file in ``files``, of every net in the solver itself, and of an upgraded solver.

    Raises:
        CaffeImportError: A file changed since it was read and cannot be read now.
    """
    message = solver.spec.message
    forms = {str(file.path): read_net_form(file.path) for file in files if file is not None}
    inside = [getattr(message, name) for name in ("net_param", "train_net_param") if message.HasField(name)]
    for number, net in enumerate([*inside, *message.test_net_param], start=1):
        forms[f"{path}, net {number} inside"] = net_form(net)
    of_solver = read_solver_upgrades(path)
    own = (FormatReport(file=str(path), version="old", upgrades=of_solver),) if of_solver else ()
    nets = (FormatReport(file=file, version=f.version, upgrades=f.upgrades) for file, f in forms.items())
    return (*own, *nets)


def layer_to_blame(error: Exception) -> str:
    """Return the name of the layer that an error of the importer is about, empty if it names none."""
    return str(getattr(error, "layer", "")) if isinstance(error, CaffeImportError) else ""
