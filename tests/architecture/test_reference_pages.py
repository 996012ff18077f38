"""The pages of docs/reference that are written by hand name what the code has."""

from __future__ import annotations

import re
from typing import get_args

from deepspark_ops.events import EventKind
from deepspark_ops.troubleshooting import message_rows
from tests.paths import ROOT
from tests.reference.message_texts import message_texts

CODE = (
    "deepspark_ops",
    "caffe_import",
    "dags",
    "plugins",
    ".ci",
    "tests/conftest.py",
    "tests/reference",
    "tests/parity",
)


def first_cells(page: str) -> set[str]:
    """Return the code words of the first cells of the tables of a page."""
    text = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def variables_of_the_code() -> set[str]:
    """Return the variables of DeepSpark's own that the code names in whole."""
    texts = [
        path.read_text(encoding="utf-8", errors="replace")
        for folder in CODE
        for path in ([ROOT / folder] if (ROOT / folder).is_file() else sorted((ROOT / folder).rglob("*")))
        if path.is_file() and path.suffix in ("", ".py", ".sh")
    ]
    return {name for text in texts for name in re.findall(r"\bDEEPSPARK_[A-Z_]*[A-Z]\b", text)}


def test_every_variable_of_the_environment_is_in_the_table_and_no_other() -> None:
    listed = {name for name in first_cells("environment.md") if name.startswith("DEEPSPARK_")}
    assert listed == variables_of_the_code()


def test_every_kind_of_event_is_in_the_table_and_no_other() -> None:
    kinds = first_cells("events.md") - {"v", "time", "kind", "clock", "worker"}
    assert kinds == set(get_args(EventKind))


def test_every_message_of_the_troubleshooting_list_is_in_the_code() -> None:
    texts = message_texts([ROOT / "deepspark_ops", ROOT / "caffe_import"])
    parts = [part for rows in message_rows().values() for part in rows]
    assert len(parts) > 50
    assert [part for part in parts if not any(part in text for text in texts)] == []
