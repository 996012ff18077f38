"""Runs of nets that are no classifiers, or more than a classifier: exported, answered by the bundle, and scored as
delivered.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest

from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.config.evaluate import EvaluateConfig, ScoreBundleConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.evaluate.comparison.mistake_pictures import open_mistake_pictures
from deepspark_ops.evaluate.evaluation_folder import read_evaluation
from deepspark_ops.evaluate.stage import run_evaluate
from deepspark_ops.export.bundle import write_bundle
from deepspark_ops.export.scores.bundle_scores import score_bundle
from deepspark_ops.predict.answers import write_answers
from tests.integration.small_run import NET, make_dataset, make_run

pytestmark = pytest.mark.tf

DATA = NET[: NET.index('layer { name: "conv"')]
FILLER = 'weight_filler { type: "xavier" }'
AUTOENCODER = (
    DATA
    + f"""
layer {{ name: "small" type: "Pooling" bottom: "data" top: "small"
  pooling_param {{ pool: AVE kernel_size: 4 stride: 4 }} }}
layer {{ name: "code" type: "InnerProduct" bottom: "small" top: "code"
  inner_product_param {{ num_output: 6 {FILLER} }} }}
layer {{ name: "flat" type: "InnerProduct" bottom: "code" top: "flat"
  inner_product_param {{ num_output: 432 {FILLER} }} }}
layer {{ name: "again" type: "Reshape" bottom: "flat" top: "again"
  reshape_param {{ shape {{ dim: 0 dim: 3 dim: 12 dim: 12 }} }} }}
layer {{ name: "fc" type: "InnerProduct" bottom: "code" top: "fc"
  inner_product_param {{ num_output: 3 {FILLER} }} }}
layer {{ name: "error" type: "EuclideanLoss" bottom: "again" bottom: "data" top: "error" loss_weight: 0.01 }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" loss_weight: 0.005 }}
"""
)
SHARED = 'param { name: "w" } param { name: "b" }'
SIAMESE = (
    DATA.replace(' mean_file: "mean"', "")  # of the two channels' means a branch would take one
    + f"""
layer {{ name: "part" type: "Slice" bottom: "data" top: "left" top: "right" top: "rest" }}
layer {{ name: "quiet" type: "Silence" bottom: "rest" }}
layer {{ name: "feat" type: "InnerProduct" bottom: "left" top: "feat"
  {SHARED} inner_product_param {{ num_output: 4 {FILLER} }} }}
layer {{ name: "feat_p" type: "InnerProduct" bottom: "right" top: "feat_p"
  {SHARED} inner_product_param {{ num_output: 4 {FILLER} }} }}
layer {{ name: "sim" type: "Threshold" bottom: "label" top: "sim" threshold_param {{ threshold: 0.5 }} }}
layer {{ name: "loss" type: "ContrastiveLoss" bottom: "feat" bottom: "feat_p" bottom: "sim" top: "loss" }}
"""
)


def run_blocks(folder: Path, ends: str) -> str:
    card = (folder / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", card, re.DOTALL | re.MULTILINE)
    blocks = [block for block in blocks if "pyspark" not in block]  # tests/integration/predict runs it in its session
    # No name goes from block to block; TensorFlow is imported once, and no garbage looked for in what that makes.
    first = "import gc; gc.disable(); import tensorflow; gc.freeze(); gc.enable()\n"
    code = f"{first}for code in {[block + ends for block in blocks]!r}: exec(code, {{}})"
    completed = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
    return completed.stdout


TWO, ALL = "saved_model,caffe", "saved_model,caffe,keras,onnx,tflite"


@pytest.mark.parametrize(("formats", "n_blocks"), [(TWO, 2), pytest.param(ALL, 5, marks=pytest.mark.long)])
def test_an_autoencoder_that_also_classifies(tmp_path: Path, formats: str, n_blocks: int) -> None:
    images, _ = make_dataset(tmp_path / "data")["test"]
    run = make_run(tmp_path / "run", tmp_path / "data", net=AUTOENCODER, n_steps=5)
    evaluated = run_evaluate(EvaluateConfig(run_dir=run.root)).metrics
    assert evaluated.task == "reconstruction"
    samples = read_evaluation(run.evaluation).samples
    pictures = open_mistake_pictures(run.evaluation, samples)
    assert set(pictures.numbers) == set(np.argsort(-samples.answers.loss, kind="stable")[:48].tolist())
    worst = evaluated.figures.worst[0].index
    picture = cv2.imdecode(np.frombuffer(pictures.read([worst])[worst].content, np.uint8), cv2.IMREAD_COLOR)
    assert picture.shape == (12, 12 + 1 + 12, 3)  # what went in, a gap, what came out
    bundle = write_bundle(ExportConfig(run_dir=run.root, formats=formats), on_step=lambda _: None)
    manifest = bundle.manifest
    assert [(output.name, output.task, output.shape) for output in manifest.outputs] == [
        ("again", "reconstruction", (-1, 3, 12, 12)),
        ("prob", "classification", (-1, 3)),
    ]
    assert (manifest.format_version, manifest.output.scores, manifest.output.classes) == (6, "again", "")
    assert manifest.output.labels == ()
    files = ["weights.caffemodel", "model.keras", "model.onnx", "model.tflite"]
    assert [reading.file for reading in manifest.check.outside] == files[: n_blocks - 1]
    assert manifest.check.left_out == {}
    assert manifest.check.largest() < 1e-4
    card = (bundle.folder / "README.md").read_text()
    assert "An autoencoder, exported by DeepSpark." in card
    assert "- again: float32 (N, 3, 12, 12), the input again, as the net takes it" in card
    shown = run_blocks(bundle.folder, "\nprint(again.shape, prob.shape, float(prob.sum()).__round__(4))\n")
    assert shown == "(1, 3, 12, 12) (1, 3) 1.0\n" * n_blocks

    scored = score_bundle(ScoreBundleConfig(run_dir=run.root, bundle=bundle.folder, output=tmp_path / "scored"))
    assert scored.main.value == pytest.approx(evaluated.main.value, rel=1e-4)

    output = tmp_path / "answers.parquet"
    config = PredictConfig(bundle=bundle.folder, input=tmp_path / "data", output=output)
    write_answers(config, on_step=lambda _: None)
    table = pq.read_table(output)
    assert table.column_names == ["id", "again", "prob", "error"]
    reconstructions = np.array(table["again"].to_pylist()).reshape(-1, 3, 12, 12)
    assert len(reconstructions) == len(images)
    assert table.schema.field("again").metadata == {b"shape": b"3,12,12", b"task": b"reconstruction"}
    np.testing.assert_allclose(np.array(table["prob"].to_pylist()).sum(axis=1), 1, rtol=1e-5)


def test_of_a_siamese_net_one_branch_is_delivered_and_pairs_are_scored_by_it(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data")
    run = make_run(tmp_path / "run", tmp_path / "data", net=SIAMESE, n_steps=5)
    evaluated = run_evaluate(EvaluateConfig(run_dir=run.root)).metrics
    bundle = write_bundle(ExportConfig(run_dir=run.root, formats="saved_model,caffe"), on_step=lambda _: None)
    (output,) = bundle.manifest.outputs
    assert (output.name, output.task, output.shape) == ("feat", "embedding", (-1, 4))
    assert bundle.manifest.inputs[0].shape == (-1, -1, -1, 1)
    assert "this is one of them, so that it takes one sample" in (bundle.folder / "README.md").read_text()
    scored = score_bundle(ScoreBundleConfig(run_dir=run.root, bundle=bundle.folder, output=tmp_path / "scored"))
    assert scored.main.value == pytest.approx(evaluated.main.value, abs=1e-6)
    assert scored.loss == pytest.approx(evaluated.loss, rel=1e-4)
    metrics = json.loads((tmp_path / "scored" / "metrics.json").read_text())
    assert metrics["task"] == "embedding"
