"""Whole runs in 16 bits, in this process: as accurate as float32, and a run goes on with its loss scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caffe_import.devices.compute_plan import Precision
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.train.snapshots.snapshot import last_state
from deepspark_ops.train.snapshots.state_file import read_worker_state
from tests.integration.small_run import NET, SOLVER, make_dataset
from tests.integration.train.in_process import Finished, run_in_process

pytestmark = pytest.mark.tf

LOSS_WEIGHT = 'bottom: "label" top: "loss" }'
N_STEPS = 140


def run_with_precision(
    folder: Path,
    precision: Precision,
    *,
    loss_weight: float = 1.0,
    base_lr: float = 0.05,
    max_iter: int = N_STEPS,
    **options: object,
) -> Finished:
    if not (folder / "data").exists():
        make_dataset(folder / "data", n_train=320)
    net, solver = folder / "net.prototxt", folder / "solver.prototxt"
    net.write_text(NET.replace(LOSS_WEIGHT, f"{LOSS_WEIGHT[:-1]} loss_weight: {loss_weight:g} }}"))
    solver.write_text(SOLVER.format(net=net))
    finished = run_in_process(
        TrainConfig(
            solver=solver,
            # A loss of more weight takes steps as large as without it.
            overrides=f"max_iter: {max_iter} snapshot: 20 test_iter: 5 test_interval: 20"
            f" base_lr: {base_lr / loss_weight:g}",
            dataset=folder / "data",
            run_dir=folder / f"run_{precision}",
            precision=precision,
            **{"n_workers": 1, **options},
        )
    )
    assert {outcome.ending for outcome in finished.outcomes} == {"finished"}, finished.outcomes
    return finished


def accuracy(finished: Finished) -> float:
    """Return what the last test of the run found; the test net computes in float32 as always."""
    return float(finished.events("evaluation")[-1].data["accuracy"])


@pytest.mark.long
def test_16_bits_train_as_accurately_as_float32(tmp_path: Path) -> None:
    scores, losses = {}, {}
    for precision in ("float32", "bfloat16", "float16"):
        finished = run_with_precision(tmp_path, precision)
        scores[precision] = accuracy(finished)
        losses[precision] = [event.data["loss"] for event in finished.events("loss")]
    assert scores["float32"] > 0.85, "the reference itself must have learned"
    # 50 test images; and 140 steps with a momentum of 0.9 make other numbers of any rounding.
    assert min(scores.values()) >= scores["float32"] - 0.08, scores
    for curve in losses.values():
        assert curve[:8] == pytest.approx(losses["float32"][:8], rel=0.05)
        assert np.mean(curve) == pytest.approx(np.mean(losses["float32"]), rel=0.15)
    assert len({tuple(curve) for curve in losses.values()}) == 3, "each precision rounds otherwise"


def test_the_loss_scale_is_in_events_and_a_run_goes_on_with_it(tmp_path: Path) -> None:
    first = run_with_precision(tmp_path, "float16", loss_weight=4096.0, max_iter=20)
    notes = [event.data["text"] for event in first.events("note") if event.data["text"].startswith("loss_scale")]
    assert notes[0] == ("loss_scale 32768 -> 16384: the gradient is not finite in float16, so no update is made")
    saved = read_worker_state(last_state(first.prepared.run.paths), 0)
    assert saved is not None
    assert saved.loss_scale is not None
    assert saved.loss_scale.scale == 2.0**15 / 2 ** len(notes)
    assert saved.updates == 20 - len(notes)
    second = run_with_precision(tmp_path, "float16", loss_weight=4096.0, max_iter=40)
    # No scale is searched again: the run goes on with the saved scale.
    first_after = next(event for event in second.events("loss") if event.clock == 20)
    assert first_after.data["loss_scale"] == saved.loss_scale.scale
    ended = read_worker_state(last_state(second.prepared.run.paths), 0)
    assert ended is not None
    assert saved.updates + 15 < ended.updates <= saved.updates + 20


@pytest.mark.parametrize("strategy", ["sync", "dcasgd"])
def test_strategies_that_work_on_gradients_push_finite_ones(strategy: str, tmp_path: Path) -> None:
    # Of two workers one may be late by many pushes on a busy machine: with larger steps dcasgd diverges then.
    fields = {"strategy": strategy, "comm_period": 1, "n_workers": 2, "max_iter": 40}
    finished = run_with_precision(tmp_path, "float16", loss_weight=4096.0, base_lr=0.002, **fields)
    assert np.isfinite(finished.center).all()
    texts = [event.data["text"] for event in finished.events("note")]
    assert any("was computed again" in text for text in texts), texts
    assert not any("no update is made" in text for text in texts), texts


def test_a_state_of_another_precision_is_taken(tmp_path: Path) -> None:
    run_with_precision(tmp_path, "float16", max_iter=20)
    (tmp_path / "run_float16").rename(tmp_path / "run_bfloat16")
    finished = run_with_precision(tmp_path, "bfloat16", max_iter=40)
    saved = read_worker_state(last_state(finished.prepared.run.paths), 0)
    assert saved is not None
    assert (saved.loss_scale, saved.updates) == (None, 40)
