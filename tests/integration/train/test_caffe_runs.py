"""One worker through the whole loop is Caffe's own run: order of data, display, tests, rates, snapshots, resume.

The numbers are recorded outputs of BVLC Caffe 1.0 (tests/fixtures/caffe/README.md).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caffe_import.files.caffemodel import read_caffemodel
from caffe_import.files.solverstate import read_solverstate
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.train.setup.run_setup import prepare_run
from deepspark_ops.train.snapshots.start import plan_start
from tests.integration.train.in_process import CAFFE, Finished, run_in_process

pytestmark = pytest.mark.tf


@pytest.fixture(autouse=True)
def _as_caffe_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CAFFE)  # Caffe's paths are relative to the working directory


def recorded_run(case: str, run_dir: Path, overrides: str = "", **options: object) -> Finished:
    folder = Path("solvers") / case
    weights = {} if "resume" in options else {"weights": folder / "init.caffemodel"}
    config = TrainConfig(
        solver=folder / "solver.prototxt",
        overrides=overrides if "display" in overrides else f"display: 1 {overrides}",
        run_dir=run_dir,
        n_workers=1,
        **weights,
        **options,
    )
    finished = run_in_process(config)
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"], finished.outcomes
    return finished


def recorded(case: str) -> dict[str, np.ndarray]:
    with np.load(CAFFE / "solvers" / case / "trajectory.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


def assert_params(finished: Finished, expected: dict[str, np.ndarray], head: str, rtol: float) -> None:
    views = finished.prepared.run.train_net.params.views(finished.center)
    for entry in finished.prepared.run.train_net.params.entries:
        view = views[entry.name]
        np.testing.assert_allclose(view, expected[f"{head}/{entry.layer}/{entry.index}"], rtol=rtol, atol=1e-6)


@pytest.mark.parametrize(
    ("case", "rtol", "comm_period"),
    [
        ("sgd_mlp", 1e-4, 1),
        ("sgd_mlp", 1e-4, 7),
        ("sgd_conv", 1e-3, 7),  # ties of MAX pooling and the kink of ReLU
        ("sgd_iter_size3", 1e-4, 7),
        ("sgd_batchnorm", 1e-4, 7),
        ("nesterov_mlp", 1e-4, 7),
        ("adagrad_mlp", 1e-4, 7),
        ("rmsprop_mlp", 1e-4, 7),
        ("adadelta_mlp", 1e-4, 7),
        ("adam_mlp", 1e-4, 7),
    ],
)
def test_one_worker_repeats_caffes_run(case: str, rtol: float, comm_period: int, tmp_path: Path) -> None:
    expected = recorded(case)
    finished = recorded_run(case, tmp_path / "run", comm_period=comm_period)
    losses = finished.events("loss")
    assert [event.clock for event in losses] == list(range(20))
    np.testing.assert_allclose([event.data["loss"] for event in losses], expected["loss"], rtol=rtol, atol=2e-6)
    np.testing.assert_allclose([event.data["learning_rate"] for event in losses], expected["lr"], rtol=1e-6)
    assert_params(finished, expected, "iter_0020", rtol)


@pytest.mark.parametrize("case", [pytest.param("sgd_mlp", marks=pytest.mark.long), "adam_mlp"])
def test_retry_goes_on_in_the_middle_of_the_data(case: str, tmp_path: Path) -> None:
    recorded_run(case, tmp_path / "run", "max_iter: 7")  # 56 samples of 40: the next batch begins at sample 16
    assert_params(recorded_run(case, tmp_path / "run"), recorded(case), "iter_0020", 1e-4)


def test_tests_come_at_caffes_places_with_caffes_numbers(tmp_path: Path) -> None:
    expected = recorded("sgd_testnet")["test"]
    finished = recorded_run("sgd_testnet", tmp_path / "run", "test_interval: 5 test_initialization: true")
    tests = finished.events("evaluation")
    assert [event.clock for event in tests] == [0, 5, 10, 15, 20]
    # The rows of the recording are tests at 0, 5, 10 and 20; the data go on from test to test, so ours at 15 moves
    # the last one's position and only the first three compare.
    for event, (clock, accuracy, loss) in zip(tests[:3], expected[:3], strict=True):
        assert event.clock == clock
        assert event.data["accuracy"] == pytest.approx(accuracy, abs=1e-6)
        assert event.data["loss"] == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("case", [pytest.param("snap_sgd", marks=pytest.mark.long), "snap_adam"])
def test_snapshots_are_caffes_and_own_and_caffes_states_go_on(case: str, tmp_path: Path) -> None:
    expected = recorded(case)
    own_run = recorded_run(case, tmp_path / "a", "max_iter: 10")
    snapshots = tmp_path / "a" / "snapshots"
    assert sorted(path.name for path in snapshots.iterdir()) == [
        "snap_iter_10.caffemodel",
        "snap_iter_10.solverstate",
        "snap_iter_10.state.h5",
    ]
    caffe_blobs = read_caffemodel(Path("solvers") / case / "snap_iter_10.caffemodel")
    our_blobs = read_caffemodel(snapshots / "snap_iter_10.caffemodel")
    assert list(our_blobs) == list(caffe_blobs)
    for layer, blobs in caffe_blobs.items():
        for own_blob, caffes in zip(our_blobs[layer], blobs, strict=True):
            np.testing.assert_allclose(own_blob, caffes, rtol=1e-4, atol=1e-6)
    caffe_state = read_solverstate(Path("solvers") / case / "snap_iter_10.solverstate")
    our_state = read_solverstate(snapshots / "snap_iter_10.solverstate")
    assert (our_state.iteration, our_state.current_step) == (10, caffe_state.current_step)
    for own_blob, caffes in zip(our_state.history, caffe_state.history, strict=True):
        np.testing.assert_allclose(own_blob, caffes, rtol=1e-3, atol=1e-6)
    assert own_run.prepared.run.solver.max_iter == 10

    # A retry with more iterations goes on where the run stood, data position included: Caffe's run without a stop.
    continued = run_in_process(
        TrainConfig(
            solver=Path("solvers") / case / "solver.prototxt",
            overrides="display: 1",
            run_dir=tmp_path / "a",
            weights=Path("solvers") / case / "init.caffemodel",
            n_workers=1,
        )
    )
    assert continued.start.clock == 10
    assert_params(continued, expected, "continued/iter_0020", 1e-4)

    # Caffe's own state: its data begin at the first row again.
    resumed = recorded_run(case, tmp_path / "b", resume=Path("solvers") / case / "snap_iter_10.solverstate")
    assert [event.clock for event in resumed.events("loss")] == list(range(10, 20))
    assert_params(resumed, expected, "resumed/iter_0020", 1e-4)


def test_a_restored_run_keeps_multisteps_counter_where_the_stepvalues_changed(tmp_path: Path) -> None:
    changed = "momentum: 0.9 stepvalue: 12 stepvalue: 14 stepvalue: 16"
    expected = [0.025] * 6 + [0.0125] * 4  # two steps were passed before 10; the third now comes at 16
    resumed = recorded_run(
        "snap_multistep", tmp_path / "a", changed, resume=Path("solvers/snap_multistep/snap_iter_10.solverstate")
    )
    rates = [event.data["learning_rate"] for event in resumed.events("loss")]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    recorded_run("snap_multistep", tmp_path / "b", "max_iter: 10")
    state = read_solverstate(tmp_path / "b" / "snapshots" / "snap_iter_10.solverstate")
    assert state.current_step == read_solverstate(Path("solvers/snap_multistep/snap_iter_10.solverstate")).current_step
    own_run = recorded_run("snap_multistep", tmp_path / "b", changed)
    rates = [event.data["learning_rate"] for event in own_run.events("loss") if event.clock >= 10]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


def test_a_restored_run_does_not_look_at_the_solvers_weights(tmp_path: Path) -> None:
    state = Path("solvers/snap_multistep/snap_iter_10.solverstate")
    overrides = 'weights: "nowhere.caffemodel"'
    config = TrainConfig(
        solver=state.parent / "solver.prototxt", overrides=overrides, run_dir=tmp_path, n_workers=1, resume=state
    )
    start = plan_start(prepare_run(config).run)
    assert start.clock == 10
    assert start.notes[1:] == ("weights that the solver names are not looked at, as in Caffe: nowhere.caffemodel",)


def test_debug_info_writes_caffes_lines_at_each_display(tmp_path: Path) -> None:
    finished = recorded_run("sgd_testnet", tmp_path / "run", "max_iter: 5 display: 2 debug_info: true")
    trained = [event for event in finished.events("debug") if "test_net" not in event.data]
    assert [event.clock for event in trained] == [0, 2, 4]
    norms = [
        line for line in trained[0].data["lines"] if line.startswith("    [Backward] All net params (data, diff): ")
    ]
    assert len(norms) == 1
    tested = [event for event in finished.events("debug") if "test_net" in event.data]
    assert [event.clock for event in tested] == [event.clock for event in finished.events("evaluation")]
    assert all(line.startswith("    [Forward] Layer ") for event in tested for line in event.data["lines"])
