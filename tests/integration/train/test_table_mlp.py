"""The example of a table: nets learn classes and values from ingested shards."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.config.evaluate import EvaluateConfig, ScoreBundleConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.ingest import IngestConfig, SourceConfig
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.evaluate.evaluation_folder import read_evaluation
from deepspark_ops.evaluate.stage import run_evaluate
from deepspark_ops.export.bundle import write_bundle
from deepspark_ops.export.input_steps import FILL, STANDARDIZE
from deepspark_ops.export.scores.bundle_scores import score_bundle
from deepspark_ops.predict.answers import write_answers
from deepspark_ops.preflight.inspect_solver import inspect_solver
from deepspark_ops.registry.gate import decide
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.shards.reader import open_dataset
from tests.integration.train.in_process import run_in_process
from tests.paths import ROOT
from tests.reference.table_files import ingest_parts, write_table

pytestmark = pytest.mark.tf

EXAMPLE = ROOT / "examples" / "table_mlp"


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    spec = importlib.util.spec_from_file_location("make_table", EXAMPLE / "make_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    table = module.make_table(4000)
    table = table.append_column("customer", [[f"c{row % 40}" for row in range(table.num_rows)]])
    return write_table(tmp_path_factory.mktemp("table") / "table.parquet", table)


def dataset_of(source: Path, folder: Path, label: str, group: str | None = None) -> Path:
    import pyarrow.parquet as pq

    config = IngestConfig(
        source=source, output=folder / label, label_column=label, feature_columns="f*", group_column=group
    )
    ingest_parts(config, [pq.read_table(source)], folder / "work", batch_rows=1000)
    return config.output


def labels_of(dataset: Path) -> np.ndarray:
    with open_dataset(dataset / "test") as opened:
        return opened.read(0, 0, opened.n_samples)[1]


def straight_boundary(dataset: Path) -> float:
    """Share of test rows on the right side of the plane that least squares finds."""
    rows = {}
    for split in ("train", "test"):
        with open_dataset(dataset / split) as opened:
            data, label = opened.read(0, 0, opened.n_samples)
        rows[split] = np.c_[data, np.ones(len(data))], label * 2 - 1
    plane = np.linalg.lstsq(*rows["train"], rcond=None)[0]
    data, sides = rows["test"]
    return float(((data @ plane > 0) == (sides > 0)).mean())


@pytest.mark.parametrize(
    ("strategy", "minibatches"), [("easgd", 640), pytest.param("lbfgs", 2560, marks=pytest.mark.long)]
)
def test_classes_are_learned_better_than_by_a_straight_boundary(source, tmp_path, strategy, minibatches):
    dataset = dataset_of(source, tmp_path, "risk")
    config = TrainConfig(
        solver=EXAMPLE / "mlp_solver.prototxt",
        overrides=f"max_iter: {minibatches} test_interval: {minibatches // 2} snapshot: {minibatches} test_iter: 2",
        dataset=dataset,
        run_dir=tmp_path / "run",
        strategy=strategy,
    )
    tests = run_in_process(config).events("evaluation")
    assert 0.6 < straight_boundary(dataset) < max(event.data["accuracy"] for event in tests) - 0.02


def test_values_are_learned_far_better_than_by_their_mean(source, tmp_path):
    dataset = dataset_of(source, tmp_path, "cost", group="customer")
    labels = labels_of(dataset)
    assert labels.dtype == np.float32
    config = TrainConfig(
        solver=EXAMPLE / "regression_solver.prototxt",
        overrides="max_iter: 1280 test_interval: 640 snapshot: 1280 test_iter: 2",
        dataset=dataset,
        run_dir=tmp_path / "run",
    )
    run = run_in_process(config)
    tests = run.events("evaluation")
    assert tests[-1].data["loss"] < 0.3 * labels.var() / 2
    check_that_the_bundle_takes_the_raw_table(source, config.run_dir, tmp_path, 2 * tests[-1].data["loss"])
    check_that_the_gate_counts_customers(dataset, config.run_dir, tmp_path)


def check_that_the_gate_counts_customers(dataset: Path, run_dir: Path, folder: Path) -> None:
    run_evaluate(EvaluateConfig(run_dir=run_dir))
    of_run, of_bundle = read_evaluation(RunPaths(run_dir).evaluation), read_evaluation(folder / "scored")
    with open_dataset(dataset / "test") as opened:
        customers = [
            text for i, shard in enumerate(opened.shards) for text in opened.texts(i, 0, shard.n_samples, "group")
        ]
    assert 2 < len(set(customers)) < 20
    for evaluated in (of_run, of_bundle):
        hashes = evaluated.samples.group.tolist()
        assert len(set(zip(customers, hashes, strict=True))) == len(set(customers)) == len(set(hashes))
    decision = decide(of_run, of_bundle, PromoteConfig(models=folder / "models", model="cost"))
    assert decision.comparison.n_groups == len(set(customers))


def check_that_the_bundle_takes_the_raw_table(source: Path, run_dir: Path, folder: Path, squared_error: float) -> None:
    import pyarrow.parquet as pq

    bundle = write_bundle(ExportConfig(run_dir=run_dir, formats="saved_model,caffe,onnx"), on_step=lambda _: None)
    assert bundle.manifest.inputs[0].preprocessing == (FILL, STANDARDIZE)
    assert bundle.manifest.check.largest() < 1e-4
    output = folder / "answers.parquet"
    write_answers(PredictConfig(bundle=bundle.folder, input=source, output=output), on_step=lambda _: None)
    rows, answers = pq.read_table(source), pq.read_table(output)
    assert answers["error"].null_count == rows.num_rows  # rows with missing numbers too
    (name,) = [output.name for output in bundle.manifest.outputs]
    off = np.array(answers[name]) - np.array(rows["cost"])
    assert np.mean(off**2) < 1.5 * squared_error  # training and test rows together
    scored = score_bundle(ScoreBundleConfig(run_dir=run_dir, bundle=bundle.folder, output=folder / "scored"))
    assert scored.main.value == pytest.approx(np.sqrt(squared_error), rel=0.2)  # the test net takes some of the rows


@pytest.mark.parametrize("label", ["risk", "cost"])
def test_check_looks_at_a_table_that_is_not_ingested(source, label):
    solver = {"risk": "mlp_solver.prototxt", "cost": "regression_solver.prototxt"}[label]
    ingest = SourceConfig(source=source, label_column=label, feature_columns="f*")
    report = inspect_solver(CheckConfig(solver=EXAMPLE / solver, ingest=ingest))
    assert not report.errors
    assert report.nets[0].data[0].sample_shapes == ((30,), ())
    assert report.nets[0].data[0].source == str(source)
    wrong = SourceConfig(source=source, label_column="risk", feature_columns="f*,!f3", query="SELECT 1")
    report = inspect_solver(CheckConfig(solver=EXAMPLE / solver, ingest=wrong))
    assert any("Spark reads the table" in problem.finding for problem in report.problems)
