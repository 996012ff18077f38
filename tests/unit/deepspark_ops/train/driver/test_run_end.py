"""Results of a run, and the message of a run without a result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, DeepSparkError, TrainingFailed
from deepspark_ops.exchange.transport.link import ExchangeStatus
from deepspark_ops.train.driver.run_end import check_result, unchanged_text
from deepspark_ops.train.snapshots.snapshot import UNCHANGED
from deepspark_ops.train.worker.outcome import WorkerOutcome

FINISHED = ExchangeStatus(40, 40, True, (), 0, (40,), None, (3, 5), 8, (0, 0), (0, 0), 0, 0, 0)


def check_outcomes(*outcomes: WorkerOutcome, has_changed: bool = True, **status: object) -> None:
    config = TrainConfig(solver=Path("s"), run_dir=Path("r"), n_workers=2, worker_tries=3)
    check_result(config, replace(FINISHED, **status), outcomes, max_iter=40, has_changed=has_changed)


def test_a_finished_run_is_a_result_though_a_worker_was_given_up() -> None:
    check_outcomes(WorkerOutcome(0, "finished"), WorkerOutcome(1, "given_up", "worker 1: killed"))


@pytest.mark.parametrize(
    ("kind", "message", "outcomes", "status"),
    [
        (ConfigError, "no such file", [WorkerOutcome(0, "refused", "no such file")], {}),
        (TrainingFailed, "loss is nan", [WorkerOutcome(0, "failed", "loss is nan")], {}),
        (
            TrainingFailed,
            "1 of 2 workers given up after 3 starts each without an exchange in between; 12 of 40 minibatches are done,"
            " .*: worker 1: killed",
            [WorkerOutcome(0, "finished"), WorkerOutcome(1, "given_up", "worker 1: killed")],
            {"finished": False, "acknowledged": 12},
        ),
        (TrainingFailed, "no worker ever exchanged", [], {"exchanges": (0, 0)}),
        (TrainingFailed, "8 exchanges were gathered and none was applied; lower", [], {"applied": 0}),
        (TrainingFailed, UNCHANGED, [], {"has_changed": False}),
    ],
)
def test_a_run_without_a_result_says_why(
    kind: type[DeepSparkError], message: str, outcomes: list[WorkerOutcome], status: dict[str, object]
) -> None:
    with pytest.raises(kind, match=message):
        check_outcomes(*outcomes, **status)  # type: ignore[arg-type]


def test_weights_that_a_search_did_not_change_have_a_remedy_of_its_own(tmp_path: Path) -> None:
    config = TrainConfig(solver=tmp_path / "s", run_dir=tmp_path / "r")
    assert unchanged_text(config, max_iter=40) == UNCHANGED
    text = unchanged_text(config.model_copy(update={"strategy": "lbfgs"}), max_iter=40)
    assert "the first line search of lbfgs did not end within max_iter=40" in text
    assert "raise max_iter" in text
