"""Cases of kind ``upgrade``: legacy text against Caffe's upgraded text, compared as messages."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format
from google.protobuf.message import Message

from caffe_import.file_access.regular_file import regular_text
from caffe_import.files.prototxt import format_message, read_net, read_solver
from caffe_import.parity.case import Case
from caffe_import.parity.findings import Findings
from caffe_import.proto import caffe_pb2


def run(case: Case, findings: Findings) -> None:
    """Upgrade the legacy text and compare with Caffe's."""
    upgraded = case.file(".upgraded.prototxt")
    legacy = next(path for path in case.files(".prototxt") if path != upgraded)
    our_message: Message = read_solver(legacy) if _is_solver(upgraded) else read_net(legacy)
    caffe_message = type(our_message)()
    text_format.Parse(regular_text(upgraded), caffe_message)
    difference = "" if our_message == caffe_message else _first_difference(our_message, caffe_message)
    findings.hold(claim=our_message == caffe_message, otherwise=f"messages differ: {difference}")


def _is_solver(path: Path) -> bool:
    try:
        text_format.Parse(regular_text(path), caffe_pb2.NetParameter())
    except text_format.ParseError:
        return True
    return False


def _first_difference(our_message: Message, caffe_message: Message) -> str:
    our_lines, their_lines = format_message(our_message).splitlines(), format_message(caffe_message).splitlines()
    pairs = zip([*our_lines, "(end)"], [*their_lines, "(end)"], strict=False)
    number, (our_line, their_line) = next(
        (number, pair) for number, pair in enumerate(pairs, start=1) if pair[0] != pair[1]
    )
    return f'line {number}: "{our_line.strip()}", Caffe has "{their_line.strip()}"'
