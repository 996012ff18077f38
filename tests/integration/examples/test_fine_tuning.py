"""The example fine_tuning, as in its README but without Spark: frozen layers stay, the new layer learns."""

import importlib.util

import numpy as np
import pytest

from caffe_import.files.caffemodel import read_caffemodel
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.train import TrainConfig
from tests.integration.train.in_process import run_in_process
from tests.paths import ROOT
from tests.reference.ingest_in_process import ingest

pytestmark = pytest.mark.tf
FOLDER = ROOT / "examples" / "fine_tuning"


def split_digits():
    spec = importlib.util.spec_from_file_location("split_digits", FOLDER / "split_digits.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fine_tuned(tmp_path, name, **options):
    config = TrainConfig(
        solver=FOLDER / f"{name}_solver.prototxt",
        dataset=tmp_path / name,
        run_dir=tmp_path / f"run_{name}",
        n_workers=1,
        threads_per_worker=1,
        **options,
    )
    finished = run_in_process(config)
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"], finished.outcomes
    tests = [event.data["accuracy"] for event in finished.events("evaluation")]
    (weights,) = (tmp_path / f"run_{name}" / "snapshots").glob("*.caffemodel")
    return weights, tests


def test_a_net_learns_new_classes(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    split_digits().main(tmp_path / "raw")
    for name in ("base", "new"):
        source = tmp_path / "raw" / f"{name}-images-idx3-ubyte"
        config = IngestConfig(source=source, output=tmp_path / name, resize_height=16, resize_width=16, max_pixel=16)
        assert ingest(config, tmp_path / "work")["train"].n_classes == 5
    base, of_base = fine_tuned(tmp_path, "base")
    assert of_base[0] < 0.5
    assert of_base[-1] > 0.95
    new, of_new = fine_tuned(tmp_path, "new", weights=base)
    assert of_new[0] < 0.5
    assert of_new[-1] > 0.9
    old_blobs, new_blobs = read_caffemodel(base), read_caffemodel(new)
    for layer in ("conv1", "conv2"):
        for old, trained in zip(old_blobs[layer], new_blobs[layer], strict=True):
            np.testing.assert_array_equal(old, trained)
    assert 0 < np.abs(old_blobs["ip1"][0] - new_blobs["ip1"][0]).max() < 0.5
    assert "ip2" not in new_blobs
    assert new_blobs["ip2_new"][0].shape == old_blobs["ip2"][0].shape
