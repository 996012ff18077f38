"""Further layer cases recorded from Caffe, by layer type; the others are in ``test_caffe_cases.py``."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from caffe_import.net.layer_registry import registered_types
from caffe_import.parity.case import Case, load_cases, run_case
from tests.paths import FIXTURES

pytestmark = pytest.mark.tf

FOLDER = FIXTURES / "caffe"
RECORDS: dict[str, list[dict[str, Any]]] = defaultdict(list)
for record in json.loads((FOLDER / "layers" / "index.json").read_text(encoding="utf-8"))["cases"]:
    RECORDS[record["layer_type"]].append(record)

WITHOUT_CASES = {
    "Data", "DummyData", "HDF5Data", "HDF5Output", "ImageData", "Input", "MemoryData", "Python", "WindowData"
}  # fmt: skip
"""No values of their own: they are fed, written by the user, or write files."""

OF_FORKS = {
    "Axpy", "ConvolutionDepthwise", "DepthwiseConvolution", "Interp", "Normalize", "Permute", "ReLU6", "ShuffleChannel",
    "Upsample"
}  # fmt: skip
"""Caffe 1.0 does not know them: compared with slow references instead."""


SELECTED = {case.name for case in load_cases(Path(os.environ.get("DEEPSPARK_CAFFE_ORACLE") or FOLDER))}
"""Of a folder with all cases test_caffe_cases.py takes all, and nothing is left here."""


@pytest.mark.parametrize("layer_type", sorted(RECORDS))
def test_layer_type_agrees_with_caffe(layer_type: str) -> None:
    faults = {}
    for record in (record for record in RECORDS[layer_type] if record["name"] not in SELECTED):
        outcome = run_case(Case(FOLDER, record))
        if outcome.status != "passed":
            faults[outcome.name] = (outcome.status, outcome.faults)
    assert not faults


def test_every_layer_type_has_cases() -> None:
    assert set(registered_types()) == RECORDS.keys() | WITHOUT_CASES | OF_FORKS
