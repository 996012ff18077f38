"""Settings of a run as names and texts, for the differences of several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from caffe_import.errors import CaffeImportError
from caffe_import.files.prototxt import read_solver
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.run_index.summary import RunSummary, read_config
from deepspark_ops.run_paths import RunPaths

_OF_ONE_RUN: Final = ("run_dir", "listen_address", "listen_port", "format_version")
"""Options about the location of a run."""
_FILES: Final = ("net", "train_net", "test_net", "snapshot_prefix", "net_param", "train_net_param", "test_net_param")
"""Fields of a solver that name files of the run; the digest identifies the net."""


def settings_of(run_dir: Path, summary: RunSummary) -> dict[str, str]:
    """Return all settings of a run; missing or damaged files are skipped.

    Returns:
        Name -> text: the options of stage train, ``solver: <field>`` of the solver as used, digests of net and data.
    """
    paths = RunPaths(run_dir)
    read = read_config(run_dir)
    together = {name: value for name, value in read.items() if isinstance(value, dict)}  # options of several stages
    config = {name: _text(value) for name, value in read.items() if name not in (*_OF_ONE_RUN, *together)}
    config |= {name: _text(value) for options in together.values() for name, value in options.items()}
    settings = {"net": summary.net or "", **config, "dataset digest": summary.dataset_digest or ""}
    with suppress(OSError):
        settings["net digest"] = file_digest(paths.net)
    with suppress(OSError, CaffeImportError):
        for field, value in read_solver(paths.solver).ListFields():
            if field.name not in _FILES:
                settings[f"solver: {field.name}"] = _field_text(field, value)
    return settings


def differences(settings: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return each setting of several runs: name, values in the runs' order, and whether the values differ.

    Example:
        >>> differences([{"tau": "4", "n": "2"}, {"tau": "10", "n": "2", "lr": "1"}])[0]
        {'name': 'tau', 'values': ['4', '10'], 'differs': True}
    """
    names = dict.fromkeys(name for run_settings in settings for name in run_settings)
    rows = []
    for name in names:
        values = [run_settings.get(name, "") for run_settings in settings]
        rows.append({"name": name, "values": values, "differs": len(set(values)) > 1})
    return rows


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _field_text(field: FieldDescriptor, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return f"{value:.7g}"
    return _text(value) if isinstance(value, bool | int | float | str) else " ".join(str(value).split())
