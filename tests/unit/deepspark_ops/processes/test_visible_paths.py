"""A task of Spark on a host that does not see the driver's files."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.parts import part_scores
from deepspark_ops.predict import part_answers as predict_parts
from deepspark_ops.processes.visible_paths import named_paths, require_visible
from deepspark_ops.stores.store_path import on_driver


def test_a_host_that_misses_files_is_named_with_the_options(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "weights").write_bytes(b"")
    paths = {
        "run_dir": tmp_path / "run",
        "weights": tmp_path / "weights",
        "dataset": on_driver(tmp_path),
        "input": tmp_path / "a.zip" / "inside",
        "output": None,
    }
    named = named_paths(paths)
    assert named == (("run_dir", str(tmp_path / "run")), ("weights", str(tmp_path / "weights")))
    require_visible(named)
    (tmp_path / "weights").unlink()
    said = rf"^host {socket.gethostname()} of the cluster does not see weights={tmp_path}/weights; .* leave out master"
    with pytest.raises(ConfigError, match=said):
        require_visible(named)


def test_tasks_look_before_they_open_anything(tmp_path: Path) -> None:
    paths = (("bundle", str(tmp_path / "none")),)
    with pytest.raises(ConfigError, match=r"does not see bundle=.*/none; "):
        next(
            predict_parts.answer_numbers(
                predict_parts.PartConfig("predict", "{}", 1, paths), 0, 1, predict_parts.PartCount()
            )
        )
    with pytest.raises(ConfigError, match=r"does not see bundle=.*/none; "):
        part_scores.score_part(part_scores.PartConfig("{}", 1, None, paths), 0, 1)
