"""Cases of kind ``upgrade``: legacy text against the text that Caffe upgrades it to, compared as messages."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format
from google.protobuf.message import Message

from caffe_import.files.prototxt import format_message, read_net, read_solver
from caffe_import.files.regular_file import regular_text
from caffe_import.parity.case import Case
from caffe_import.parity.findings import Findings
from caffe_import.proto import caffe_pb2


def run(case: Case, findings: Findings) -> None:
    """Upgrade the legacy text and compare with Caffe's."""
    upgraded = case.file(".upgraded.prototxt")
    legacy = next(path for path in case.files(".prototxt") if path != upgraded)
    ours: Message = read_solver(legacy) if _is_solver(upgraded) else read_net(legacy)
    theirs = type(ours)()
    text_format.Parse(regular_text(upgraded), theirs)
    difference = "" if ours == theirs else _first_difference(ours, theirs)
    findings.hold(claim=ours == theirs, otherwise=f"messages differ: {difference}")


def _is_solver(path: Path) -> bool:
    try:
        text_format.Parse(regular_text(path), caffe_pb2.NetParameter())
    except text_format.ParseError:
        return True
    return False


def _first_difference(ours: Message, theirs: Message) -> str:
    our_lines, their_lines = format_message(ours).splitlines(), format_message(theirs).splitlines()
    pairs = zip([*our_lines, "(end)"], [*their_lines, "(end)"], strict=False)
    number, (our_line, their_line) = next(
        (number, pair) for number, pair in enumerate(pairs, start=1) if pair[0] != pair[1]
    )
    return f'line {number}: "{our_line.strip()}", Caffe has "{their_line.strip()}"'
