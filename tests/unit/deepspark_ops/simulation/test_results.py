"""The file of a run's result: found again for the same run alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import VirtualRunConfig
from deepspark_ops.events import make_event
from deepspark_ops.exchange.strategies.shared_rules import Elastic
from deepspark_ops.simulation.results import (
    digest_of_inputs,
    main_figure,
    read_result,
    result_file,
    time_to,
    write_result,
)
from deepspark_ops.train.worker.rates import measured_rates, rate_scale
from tests.paths import ROOT
from tests.reference.dataset_files import put_manifest_text
from tests.unit.deepspark_ops.simulation.small_results import result

LENET = ROOT / "examples" / "digits" / "lenet_solver.prototxt"


def virtual_run_config(**changes: Any) -> VirtualRunConfig:
    values = {"solver": LENET, "strategy": "easgd", "n_workers": 4, "seed": 3, "step_ms": 50.0, "result": Path("x")}
    return parse_config(VirtualRunConfig, {**values, **changes})


def test_a_result_is_read_as_written(tmp_path: Path) -> None:
    written = result("easgd", 4, 1, [0.1, 0.5])
    write_result(tmp_path / "a.json", written)
    assert read_result(tmp_path / "a.json") == written


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format_version": 1}', '{"format_version": 0, "result": {}}'])
def test_a_damaged_result_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    assert read_result(tmp_path / "a.json") is None
    assert read_result(tmp_path / "missing.json") is None


def test_whatever_changes_a_run_changes_its_file(tmp_path: Path) -> None:
    own_file = result_file(tmp_path, virtual_run_config(), "inputs")
    assert own_file.name.startswith("easgd-w4-s3-")
    assert (
        result_file(tmp_path, virtual_run_config(result=Path("y"), solver=Path("copy.prototxt")), "inputs") == own_file
    )
    changes = [
        {"network": "1gbit,1ms"},
        {"step_ms": 40.0},
        {"overrides": "base_lr: 1"},
        {"stragglers": 0.1},
        {"seed": 4},
    ]
    files = {result_file(tmp_path, virtual_run_config(**fields), "inputs") for fields in changes} | {
        result_file(tmp_path, virtual_run_config(), "b")
    }
    assert len(files) == 6
    assert own_file not in files


def test_a_changed_default_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default_file = result_file(tmp_path, virtual_run_config(), "inputs")
    file_of_rate = result_file(tmp_path, virtual_run_config(moving_rate=0.4), "inputs")
    of_sync = result_file(tmp_path, virtual_run_config(strategy="sync"), "inputs")
    with monkeypatch.context() as patched:
        patched.setattr(Elastic, "default_moving_rate", lambda _strategy, _n_workers: 0.25)
        assert result_file(tmp_path, virtual_run_config(), "inputs") != default_file
        assert result_file(tmp_path, virtual_run_config(moving_rate=0.4), "inputs") == file_of_rate
    with monkeypatch.context() as patched:
        patched.setattr(rate_scale, "LONG_WARMUP_FRACTION", 0.2)
        assert result_file(tmp_path, virtual_run_config(), "inputs") != default_file
    with monkeypatch.context() as patched:
        patched.setattr(measured_rates, "SHARE", 0.25)
        assert result_file(tmp_path, virtual_run_config(), "inputs") != default_file
        assert result_file(tmp_path, virtual_run_config(strategy="sync"), "inputs") == of_sync
    assert result_file(tmp_path, virtual_run_config(), "inputs") == default_file


def test_a_changed_net_or_dataset_is_another_input(tmp_path: Path) -> None:
    old_digest = digest_of_inputs(virtual_run_config(dataset=tmp_path))
    put_manifest_text(tmp_path, "train", "1")
    first = digest_of_inputs(virtual_run_config(dataset=tmp_path))
    put_manifest_text(tmp_path, "train", "2")
    assert len({old_digest, first, digest_of_inputs(virtual_run_config(dataset=tmp_path))}) == 3
    assert (
        digest_of_inputs(virtual_run_config())
        == old_digest
        != digest_of_inputs(virtual_run_config(overrides="gamma: 3"))
    )


def test_the_figure_is_the_accuracy_else_the_first_number() -> None:
    both = make_event("evaluation", test_net=0, loss=0.3, top_1_acc=0.5, seconds=1.0)
    assert main_figure([both]) == "top_1_acc"
    assert main_figure([make_event("evaluation", test_net=0, loss=0.3, other=0.5, seconds=1.0)]) == "loss"
    assert main_figure([]) == ""


def test_a_loss_reaches_its_target_from_above() -> None:
    curve = result("easgd", 1, 1, [3.0, 1.0, float("nan"), 0.5]).curve
    assert time_to(curve, 1.0, higher_is_better=False) == 5.0
    assert time_to(curve, 0.4, higher_is_better=False) is None
