"""The examples of tasks without a class: trained for a part of their time in this process, evaluated, sane figures."""

import runpy
import sys
from pathlib import Path

import pytest

from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.evaluate.stage import run_evaluate
from tests.integration.small_run import train_here
from tests.reference.ingest_in_process import ingest

pytestmark = pytest.mark.tf
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def example_folder(tmp_path, monkeypatch):
    """A folder from which the examples' paths are right."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluated(name, n_steps, dataset=None):
    run = train_here(Path(f"examples/{name}/{name}_solver.prototxt"), Path("run"), dataset, n_steps=n_steps)
    evaluation = run_evaluate(EvaluateConfig(run_dir=run.root))
    return evaluation.metrics, evaluation.report_path.read_text()


def run_script(monkeypatch, name, folder):
    monkeypatch.setattr(sys, "argv", [name, folder])
    runpy.run_path(f"examples/{name}", run_name="__main__")


def test_autoencoder(example_folder):
    dataset = example_folder / "datasets" / "digits8"
    source = example_folder / "examples" / "digits" / "digits8x8-images-idx3-ubyte.gz"
    ingest(IngestConfig(source=source, output=dataset, max_pixel=16), example_folder / "work")
    metrics, page = evaluated("autoencoder", 250, dataset)
    assert (metrics.task, metrics.n_samples) == ("reconstruction", 377)
    # The mean digit has an error of 0.073, the six best linear numbers 0.030: the net is between them so early.
    assert 0.03 < metrics.main.value < 0.06
    assert page.count("given back") > 24


def test_siamese(example_folder, monkeypatch):
    run_script(monkeypatch, "siamese/make_pairs.py", "datasets/digit_pairs")
    metrics, page = evaluated("siamese", 400)
    assert (metrics.task, metrics.n_samples, metrics.figures.n_same) == ("embedding", 1000, 500)
    assert 0.85 < metrics.main.value < 1
    assert 0.75 < metrics.figures.best_accuracy < metrics.main.value
    assert "ROC curve" in page


def test_multi_label(example_folder, monkeypatch):
    run_script(monkeypatch, "multi_label/make_labels.py", "datasets/digit_labels")
    metrics, page = evaluated("multi_label", 250)
    assert (metrics.task, metrics.n_samples, len(metrics.figures.labels)) == ("multi_label", 360, 4)
    assert 0.9 < metrics.main.value < 1
    assert 0.7 < metrics.figures.subset_accuracy < metrics.figures.micro.f1
    assert "Calibration" in page
