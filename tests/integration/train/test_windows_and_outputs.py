"""A net that draws windows and writes HDF5 files, with several workers."""

from __future__ import annotations

from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest

from caffe_import.errors import DataSourceError
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.preflight.inspect_solver import inspect_solver
from deepspark_ops.train.setup.run_setup import prepare_run
from tests.integration.train.in_process import run_in_process

pytestmark = pytest.mark.tf

NET = """
name: "windows"
layer { name: "windows" type: "WindowData" top: "data" top: "label"
  transform_param { crop_size: 8 mirror: true mean_value: 100 }
  window_data_param { source: "windows.txt" root_folder: "." batch_size: 4 scale: 0.01 context_pad: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "write" type: "HDF5Output" bottom: "ip" bottom: "label" hdf5_output_param { file_name: "%s" } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 6 display: 2 random_seed: 3
test_iter: 2 test_interval: 6 snapshot_prefix: "w"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    cv2.imwrite(str(tmp_path / "a.png"), rng.integers(0, 255, (20, 20, 3)).astype(np.uint8))
    (tmp_path / "windows.txt").write_text("# 0 a.png 3 20 20 3 1 0.9 2 2 12 12 2 0.8 0 4 18 19 1 0.1 9 9 15 15")
    (tmp_path / "net.prototxt").write_text(NET % "scores.h5")
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return tmp_path


def window_config(folder: Path, **options: object) -> TrainConfig:
    return TrainConfig(solver=folder / "solver.prototxt", run_dir=folder / "run", **options)


def test_a_windows_label_that_is_no_class_is_refused_before_training(folder: Path) -> None:
    (folder / "windows.txt").write_text("# 0 a.png 3 20 20 3 1 0.9 2 2 12 12 4 0.8 0 4 18 19 1 0.1 9 9 15 15")
    with pytest.raises(DataError) as caught:
        prepare_run(window_config(folder))
    finding = (
        'layer "loss" (SoftmaxWithLoss): label 4 of foreground window 1 (in image "a.png") is none of the 3 classes'
        ' that bottom "ip" has scores for; allowed: 0 to 2;'
    )
    assert str(caught.value).startswith(finding)
    assert any(finding in error for error in inspect_solver(CheckConfig(solver=folder / "solver.prototxt")).errors)


@pytest.mark.parametrize("n_workers", [1, 2])
def test_windows_train_and_outputs_are_written_per_worker_and_per_test(folder: Path, n_workers: int) -> None:
    finished = run_in_process(window_config(folder, n_workers=n_workers, comm_period=1))
    assert {outcome.ending for outcome in finished.outcomes} == {"finished"}, finished.outcomes
    outputs = folder / "run" / "outputs"
    names = sorted(path.name for path in (outputs / "train").iterdir())
    ran = [outcome.worker for outcome in finished.outcomes if outcome.steps]
    assert names == (["scores.h5"] if n_workers == 1 else [f"scores.worker_{worker}.h5" for worker in ran])
    with h5py.File(outputs / "train" / names[0]) as file:
        assert file["data"].shape == (4, 3, 1, 1)
        assert file["label"][:3].ravel().tolist() == [0, 0, 0]  # fg_fraction 0.25: one window of four
        assert file["label"][3].item() in (1, 2)
    with h5py.File(outputs / "test_0" / "scores.h5") as file:
        assert file["data"].shape == (8, 3, 1, 1)  # both batches of the test
        assert np.isfinite(file["data"][()]).all()
    assert len(finished.events("evaluation")) == 2


def test_the_same_worker_draws_the_same_windows_again(folder: Path) -> None:
    first = run_in_process(window_config(folder, n_workers=1))
    second = run_in_process(TrainConfig(solver=folder / "solver.prototxt", run_dir=folder / "again", n_workers=1))
    assert first.outcomes[0].steps > 0
    np.testing.assert_array_equal(first.center, second.center)


def test_two_layers_may_not_write_one_file(folder: Path) -> None:
    (folder / "net.prototxt").write_text(NET % f"{folder}/scores.h5")
    with pytest.raises(
        ConfigError, match=r'layer "write" of the test_0 net writes .*scores.h5, as layer "write" of the'
    ):
        prepare_run(window_config(folder))
    assert not (folder / "run").exists()


def test_check_says_what_is_drawn_from(folder: Path) -> None:
    report = inspect_solver(CheckConfig(solver=folder / "solver.prototxt"))
    assert report.errors == ()
    layer = report.nets[0].layers[0]
    assert layer.top_shapes == ((4, 3, 8, 8), (4,))
    assert layer.notes[0] == "draws 1 of 2 foreground and 3 of 1 background windows a batch, in 1 images"
    assert report.results == ()
    assert report.no_result.startswith('layer "windows" draws its windows at random, so there is no set of samples')


def test_the_notes_say_where_the_files_lie(folder: Path) -> None:
    prepared = prepare_run(window_config(folder))
    assert 'layer "write" of the test_0 net writes outputs/test_0/scores.h5: all batches of the last test' in (
        prepared.notes
    )


def test_a_missing_image_is_found_before_the_run_begins(folder: Path) -> None:
    (folder / "a.png").unlink()
    with pytest.raises(DataSourceError, match=r'layer "windows": image .*a\.png of the window file: No such file'):
        prepare_run(window_config(folder))
    assert not (folder / "run").exists()


FILTERED = """
layer { name: "in" type: "HDF5Data" top: "data" top: "label" top: "keep"
  hdf5_data_param { source: "list.txt" batch_size: 4 } }
layer { name: "pick" type: "Filter" bottom: "data" bottom: "label" bottom: "label" bottom: "keep"
  top: "kept" top: "kept_label" top: "unread" }
layer { name: "write" type: "HDF5Output" bottom: "kept" bottom: "%s" hdf5_output_param { file_name: "kept.h5" } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
KEEP = np.float32([[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]])


@pytest.fixture
def filtered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """16 samples in four batches; Filter leaves 3, 0, 1 and 4 samples."""
    monkeypatch.chdir(tmp_path)
    with h5py.File(tmp_path / "samples.h5", "w") as file:
        file["data"] = np.arange(32, dtype=np.float32).reshape(16, 2)
        file["label"] = np.arange(16, dtype=np.float32) % 3
        file["keep"] = KEEP.reshape(-1)
    (tmp_path / "list.txt").write_text("samples.h5")
    (tmp_path / "net.prototxt").write_text(FILTERED % "kept_label")
    return tmp_path


@pytest.mark.parametrize(
    ("strategy", "max_iter", "batch"), [("easgd", 1, 0), ("easgd", 2, 1), ("easgd", 3, 2), ("lbfgs", 12, 3)]
)
def test_behind_filter_a_file_has_the_rows_that_are_left(
    filtered: Path, strategy: str, max_iter: int, batch: int
) -> None:
    (filtered / "solver.prototxt").write_text(
        f'net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: {max_iter} display: 1 random_seed: 3 '
        'test_iter: 4 test_interval: 9 snapshot_prefix: "w"'
    )
    finished = run_in_process(window_config(filtered, strategy=strategy, order="file", n_workers=1))
    assert {outcome.ending for outcome in finished.outcomes} == {"finished"}, finished.outcomes
    with h5py.File(filtered / "samples.h5") as file:
        data, label = file["data"][()].reshape(16, 2, 1, 1), file["label"][()].reshape(16, 1, 1, 1)
    outputs = filtered / "run" / "outputs"
    of_last_pass = np.flatnonzero(KEEP.reshape(-1) * (np.arange(16) // 4 == batch))
    for path, rows in (
        (outputs / "train" / "kept.h5", of_last_pass),
        (outputs / "test_0" / "kept.h5", np.flatnonzero(KEEP.reshape(-1))),
    ):
        with h5py.File(path) as file:
            np.testing.assert_array_equal(file["data"][()], data[rows])
            np.testing.assert_array_equal(file["label"][()], label[rows])
    evaluation = finished.events("evaluation")[0].data["unread"]
    assert evaluation == ["nan"] * 4  # one batch has no row at all


def test_bottoms_with_different_numbers_of_rows_end_the_run(filtered: Path) -> None:
    (filtered / "net.prototxt").write_text(FILTERED % "label")
    (filtered / "solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: 2 display: 1 snapshot_prefix: "w"'
    )
    outcome = run_in_process(window_config(filtered, order="file", n_workers=1)).outcomes[0]
    assert outcome.ending == "refused"
    assert 'layer "write" (HDF5Output): bottom "kept" holds 3 samples and "label_in_1_split' in outcome.message
