"""Strategies whose workers wait for each other, when a worker is lost for good and then the driver with all others."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffe_import.tf_graph.train_step import TrainFunction
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.exchange.local_exchange import LocalLink
from tests.integration.train.in_process import run_in_process
from tests.integration.train.test_lbfgs import lbfgs_config

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("strategy", ["sync", pytest.param("local_sgd", marks=pytest.mark.long), "lbfgs"])
def test_the_others_go_on_and_a_retry_finishes_the_clock(strategy: str, dataset: Path, tmp_path: Path) -> None:
    overrides = f"snapshot: 20 {'' if strategy == 'lbfgs' else 'base_lr: 0.01'}"
    options: dict[str, object] = {"strategy": strategy, "n_workers": 2, "overrides": overrides}
    config: TrainConfig = lbfgs_config(tmp_path, dataset, max_iter=80, **options)
    first = run_in_process(config, deaths={1: 8, 0: 44})
    assert [outcome.message for outcome in first.outcomes] == ["died", "died"]
    assert max(event.clock for event in first.events("loss")) >= 44, "worker 0 went on alone"
    assert first.prepared.run.paths.snapshot_iterations() == [20, 40]
    finished = run_in_process(config)
    assert finished.start.clock == 40
    assert [outcome.ending for outcome in finished.outcomes] == ["finished", "finished"]
    assert sum(outcome.steps for outcome in finished.outcomes) >= 40
    assert finished.prepared.run.paths.snapshot_iterations() == [20, 40, 60, 80]
    assert not np.array_equal(finished.center, finished.start.center)
    lost = [event.worker for event in finished.events("worker_lost")]
    assert lost == [1, 0]


@pytest.mark.parametrize(("strategy", "n_steps"), [("local_sgd", 1), ("easgd", 0)])
def test_the_slow_first_step_comes_before_the_first_grant_where_others_would_wait(
    strategy: str, n_steps: int, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: dict[int, list[object]] = {}
    run, request_grant = TrainFunction.run, LocalLink.request_grant

    def noted_run(function: TrainFunction, *state: Any, **arguments: Any) -> Any:
        calls.setdefault(threading.get_ident(), []).append(arguments["n_steps"])
        return run(function, *state, **arguments)

    def noted_request(link: LocalLink, *arguments: Any, **options: Any) -> Any:
        calls.setdefault(threading.get_ident(), []).append("grant")
        return request_grant(link, *arguments, **options)

    monkeypatch.setattr(TrainFunction, "run", noted_run)
    monkeypatch.setattr(LocalLink, "request_grant", noted_request)
    config = lbfgs_config(tmp_path, dataset, max_iter=8, strategy=strategy, n_workers=2, overrides="base_lr: 0.01")
    finished = run_in_process(config)
    assert sum(outcome.steps for outcome in finished.outcomes) == 8
    starts = [thread_calls[:2] for thread_calls in calls.values() if set(thread_calls) != {"grant"}]  # no grants ahead
    assert starts == [[n_steps, "grant"]] * 2
