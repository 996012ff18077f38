"""The Python functions with their real stages: what each returns, and what an interrupt leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deepspark_ops as ds
from deepspark_ops.api import stages
from deepspark_ops.run_label.label import read_label
from tests.integration.small_run import NET, SOLVER, make_dataset
from tests.paths import ROOT
from tests.reference.command_line import run_stage_here

pytestmark = [pytest.mark.spark, pytest.mark.tf, pytest.mark.slow]

DIGITS = ROOT / "examples" / "digits" / "digits8x8-images-idx3-ubyte.gz"
DIGITS_NET = """
name: "small"
layer { name: "data" type: "Data" top: "data" top: "label" transform_param { scale: 0.00390625 }
  data_param { source: "none" batch_size: 20 backend: LMDB } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
DIGITS_SOLVER = """
net: "net.prototxt" base_lr: 0.5 lr_policy: "fixed" max_iter: 60 snapshot: 60 snapshot_prefix: "small" display: 10
random_seed: 1 test_iter: 3 test_interval: 30
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    (folder / "net.prototxt").write_text(DIGITS_NET)
    (folder / "solver.prototxt").write_text(DIGITS_SOLVER.replace("net.prototxt", str(folder / "net.prototxt")))
    return folder


@pytest.fixture(scope="module")
def dataset(root: Path) -> ds.Dataset:
    return ds.ingest(DIGITS, root / "digits", max_pixel=16, progress=False)


@pytest.fixture(scope="module")
def run(root: Path, dataset: ds.Dataset) -> ds.Run:
    return ds.train(root / "solver.prototxt", dataset=dataset, run_dir=root / "run", n_workers=1, progress=False)


@pytest.fixture(scope="module")
def bundle(run: ds.Run) -> ds.Bundle:
    ds.evaluate(run, progress=False)
    return ds.export(run, formats="saved_model,caffe,keras", progress=False)


def test_every_stage_returns_what_it_wrote(root: Path, dataset: ds.Dataset, run: ds.Run, bundle: ds.Bundle) -> None:
    assert isinstance(dataset, ds.Dataset)
    assert (run.status, run.clock) == ("finished", 60)
    assert run.dataset == dataset
    assert run.bundle == bundle
    assert [path.name for path in run.snapshots] == ["small_iter_60.caffemodel"]
    assert run.metrics.n_samples == dataset.splits["test"].n_samples
    assert run.metrics.main.value > 0.7
    kinds = {root / "digits": dataset, root / "run": run, root / "run" / "bundle": bundle}
    assert {path: ds.open(path) for path in kinds} == kinds
    assert "top1=" in run._repr_html_()
    assert "saved_model/" in bundle._repr_html_()


def test_predictions_of_arrays_files_and_frames_agree(
    root: Path,
    dataset: ds.Dataset,
    bundle: ds.Bundle,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import pandas

    samples = dataset.sample(6, split="test")
    answers = bundle.predict(samples, progress=False)
    # The first was answered by the stage's process; the other inputs have the same process.
    monkeypatch.setattr(stages, "run_job", run_stage_here)
    assert answers.error.isna().all()
    right = sum(answers.predicted == samples.labels)
    assert right >= 3
    pixels = bundle.predict(samples.images, max_pixel=255, progress=False)
    assert np.array_equal(np.stack(pixels.scores), np.stack(answers.scores))
    import cv2

    files = []
    for at, image in enumerate(samples.images):
        files.append(root / f"{at}.png")
        cv2.imwrite(str(files[-1]), image[..., ::-1] if image.ndim == 3 else image)
    of_files = bundle.predict(files, max_pixel=255, progress=False)
    assert "outside of the allowed folders" not in caplog.text, "the caller names the files"
    with pytest.raises(ds.ConfigError, match="outside of the allowed folders"):
        bundle.predict(pandas.DataFrame({"path": map(str, files)}), confined=True, progress=False)
    assert of_files.id.tolist() == [str(file) for file in files]
    assert np.array_equal(np.stack(of_files.scores), np.stack(answers.scores))
    frame = pandas.DataFrame({"picture": [file.read_bytes() for file in files], "other": 1})
    of_frame = bundle.predict(frame, image_column="picture", max_pixel=255, top_k=2, progress=False)
    assert np.array_equal(np.stack(of_frame.scores), np.stack(answers.scores))
    assert len(of_frame.top_classes.iloc[0]) == 2
    summary = ds.predict(bundle, dataset, root / "answers.parquet", progress=False)
    assert len(summary.frame()) == dataset.splits["test"].n_samples
    assert "Predictions" in summary._repr_html_()


@pytest.mark.parametrize("images", [np.zeros((2, 8, 8), np.float32), np.zeros(3, np.uint8), 5, []])
def test_inputs_of_no_allowed_kind_are_refused_before_anything_runs(bundle: ds.Bundle, images: object) -> None:
    with pytest.raises(ds.ConfigError, match=r"images=.*: allowed: a path or several, a DataFrame, pixels"):
        bundle.predict(images, progress=False)  # type: ignore[arg-type]


def test_keras_model_computes_what_the_bundle_predicts(
    dataset: ds.Dataset, bundle: ds.Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "run_job", run_stage_here)
    samples = dataset.sample(6, split="test")
    answers = bundle.predict(samples, progress=False)
    model = bundle.keras()
    images = samples.images if samples.images.ndim == 4 else samples.images[..., None]
    contract = bundle.manifest
    scores = model({contract.inputs[0].name: images})[contract.output.scores]
    assert np.allclose(np.asarray(scores), np.stack(answers.scores), atol=1e-5)


def test_bundle_without_keras_says_how_to_get_one(root: Path, run: ds.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "run_job", run_stage_here)
    bundle = ds.export(run, output=root / "plain", formats=("saved_model", "caffe"), progress=False)
    with pytest.raises(ds.ConfigError, match=r"no model.keras in the bundle; export again with formats"):
        bundle.keras()


@pytest.mark.long
def test_comparison_trains_every_trial_and_goes_on_where_it_was(root: Path, dataset: ds.Dataset) -> None:
    options = {"dataset": dataset, "run_dir": root / "compared", "overrides": "max_iter: 20", "progress": False}
    options |= {"name": "two rates", "tags": "rates"}
    comparison = ds.compare(root / "solver.prototxt", base_lrs=[0.5, 0.001], n_workers=1, **options)
    frame = comparison.frame
    assert frame.base_lr.tolist() == [0.5, 0.001]
    assert frame.status.tolist() == ["finished", "finished"]
    assert frame.accuracy.iloc[0] > frame.accuracy.iloc[1]
    assert {name: run.clock for name, run in comparison.runs.items()} == {"base_lr 0.5": 20, "base_lr 0.001": 20}
    assert ds.open(root / "compared") == comparison
    labels = [read_label(folder) for folder in (root / "compared", root / "compared__trial_02")]
    assert [(label.name, label.tags) for label in labels] == [
        ("two rates", ("rates",)), ("two rates: base_lr 0.001", ("rates",)),
    ]  # fmt: skip
    assert "base_lr 0.001" in comparison._repr_html_()
    assert [trace.name for trace in comparison.plot().data] == ["base_lr 0.5", "base_lr 0.001"]
    events = [run.folder / "events.jsonl" for run in comparison.runs.values()]
    old_times = [file.stat().st_mtime_ns for file in events]
    ds.compare(root / "solver.prototxt", base_lrs=[0.5, 0.001], n_workers=1, **options)
    assert [file.stat().st_mtime_ns for file in events] == old_times
    with pytest.raises(ds.ConfigError, match="holds a comparison of 2 other trials"):
        ds.compare(root / "solver.prototxt", base_lrs=[0.5, 0.01], n_workers=1, **options)


INTERRUPTED = """
import sys
import deepspark_ops as ds
folder, dataset = sys.argv[1:]
call = dict(dataset=dataset, run_dir=folder + "/run", n_workers=1,
            overrides="max_iter: 1000000 display: 20 snapshot: 0 test_interval: 1000000")
try:
    ds.train(folder + "/solver.prototxt", **call)
except KeyboardInterrupt:
    run = ds.open(folder + "/run")
    print("interrupted", run.status, run.clock, run.snapshots[-1].name)
print({"tensorflow", "pyspark", "keras"} & set(sys.modules))
"""


@pytest.mark.long
def test_interrupt_takes_a_snapshot_ends_the_run_and_the_process_goes_on(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data")
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER.format(net=tmp_path / "net.prototxt"))
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path), str(tmp_path / "data")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if " loss clock=" in line:
                break
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=180)
    finally:
        process.kill()
    assert process.returncode == 0, "".join(lines) + output
    interrupted, loaded = output.splitlines()[-2:]
    word, status, clock, snapshot = interrupted.split()
    assert (word, status) == ("interrupted", "stopped")
    assert int(clock) > 0
    assert snapshot == f"patches_iter_{clock}.caffemodel"
    assert loaded == "set()"
