"""Upgrade of an old file to Caffe's current form.

Replaces Caffe's tools upgrade_net_proto_text, upgrade_net_proto_binary and upgrade_solver_proto_text.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from caffe_import.file_access.whole_file import write_text_whole
from caffe_import.files.prototxt import (
    format_message,
    read_net,
    read_net_form,
    read_solver,
    read_solver_upgrades,
    read_text,
)
from caffe_import.files.prototxt_scan import scan_prototxt
from caffe_import.proto import caffe_pb2
from caffe_import.surgery.weights_message import read_weights_and_form, write_weights

Kind = Literal["net", "solver", "weights"]
_NET_FIELDS = frozenset(caffe_pb2.NetParameter.DESCRIPTOR.fields_by_name)
_SOLVER_FIELDS = frozenset(caffe_pb2.SolverParameter.DESCRIPTOR.fields_by_name)


@dataclass(frozen=True)
class Upgraded:
    """A rewritten file.

    Attributes:
        kind: What it is.
        steps: What changed, one line each; empty if the file had the current form already.
    """

    kind: Kind
    steps: tuple[str, ...]


def upgrade_file(source: Path, output: Path) -> Upgraded:
    """Write a net, solver or weights file in the current form; ``output`` appears whole or not at all.

    Texts lose comments, as with Caffe's tools. Weights become HDF5 if ``output`` ends in ``.h5``.

    Args:
        source: A prototxt of a net or solver, or a weights file.
        output: Where to; may be ``source``.

    Raises:
        CaffeImportError: The source is missing, damaged, or cannot be upgraded.
    """
    if _is_solver(text := read_text(source)):
        solver, steps = read_solver(source), read_solver_upgrades(source)
        write_text_whole(output, format_message(solver))
        return Upgraded("solver", steps)
    if text:
        net, form = read_net(source), read_net_form(source)
        write_text_whole(output, format_message(net))
        return Upgraded("net", form.upgrades)
    weights, form = read_weights_and_form(source)
    write_weights(output, weights)
    return Upgraded("weights", form.upgrades)


def _is_solver(text: str) -> bool:
    """Whether most of the fields at the top of a text that net and solver do not share are a solver's."""
    scan = scan_prototxt(text)
    root = scan.blocks[0]
    names = [token.field_name for token in scan.tokens if token.block is root and token.role == "field"]
    names += [block.name for block in scan.blocks if block.parent is root]
    is_solver_field = [name in _SOLVER_FIELDS for name in names if name in _SOLVER_FIELDS ^ _NET_FIELDS]
    return sum(is_solver_field) * 2 > len(is_solver_field)
