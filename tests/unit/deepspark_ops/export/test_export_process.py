from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepspark_ops.export import __main__ as export_main
from deepspark_ops.export.__main__ import main


def test_gpus_are_hidden_before_anything_that_computes_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Imported:
        """Stands for the module; its import reads ``write_bundle``."""

        @property
        def write_bundle(self):
            visible_devices.append(os.environ["CUDA_VISIBLE_DEVICES"])
            return lambda config, on_step: SimpleNamespace(summary=lambda: "done")

    visible_devices: list[str] = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setitem(sys.modules, "deepspark_ops.export.bundle", Imported())
    monkeypatch.setattr(export_main, "find_weights", lambda run, weights: None)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"run_dir": str(tmp_path)}))
    main(config)
    assert visible_devices == ["-1"]
