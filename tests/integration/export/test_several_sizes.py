"""Images of several sizes that a net crops: trained, evaluated, exported and predicted image by image, as in Caffe."""

import lmdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from caffe_import.files.caffemodel import read_caffemodel
from caffe_import.files.datum import encode_datum
from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.config.evaluate import EvaluateConfig, ScoreBundleConfig
from deepspark_ops.config.export import ExportConfig
from tests.integration.small_run import make_run

pytestmark = pytest.mark.tf

CROP, MEAN = 6, np.array([90.0, 100.0, 110.0])
N_SAMPLES = 37
DATA = """
layer {{ name: "data" type: "Data" top: "data" top: "label" include {{ phase: {phase} }}
  transform_param {{ crop_size: 6 mirror: true scale: 0.01 mean_value: 90 mean_value: 100 mean_value: 110 }}
  data_param {{ source: "{source}" batch_size: 8 backend: LMDB }} }}
"""
LAYERS = """
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Images of a database, the trained run and its bundle."""
    from deepspark_ops.evaluate.stage import run_evaluate  # TensorFlow
    from deepspark_ops.export.bundle import write_bundle

    folder = tmp_path_factory.mktemp("sizes")
    rng = np.random.default_rng(4)
    images = [rng.integers(0, 256, (3, *rng.integers(CROP, 15, 2)), dtype=np.uint8) for _ in range(N_SAMPLES)]
    with lmdb.open(str(folder / "db"), map_size=2**24) as environment, environment.begin(write=True) as transaction:
        for index, image in enumerate(images):
            transaction.put(b"%08d_x" % index, encode_datum(image, index % 3))
    net = "".join(DATA.format(phase=phase, source=folder / "db") for phase in ("TRAIN", "TEST")) + LAYERS
    run = make_run(folder, net=net, n_steps=9)
    run_evaluate(EvaluateConfig(run_dir=run.root, scores=True))
    bundle = write_bundle(ExportConfig(run_dir=run.root), on_step=lambda step: None)
    assert not bundle.manifest.check.left_out
    return folder / "db", images, run, bundle.folder


def scores_by_hand(run, images):
    """Softmax of each image's central crop, one image at a time."""
    weights, bias = read_caffemodel(next(run.root.rglob("*.caffemodel")))["ip"]
    scores = []
    for image in images:
        row, column = ((extent - CROP) // 2 for extent in image.shape[1:])
        pixels = image[:, row : row + CROP, column : column + CROP] - MEAN[:, None, None]
        powers = np.exp(weights.reshape(3, -1).astype(np.float64) @ (pixels.ravel() * 0.01) + bias.ravel())
        scores.append(powers / powers.sum())
    return np.stack(scores)


def test_each_image_is_scored_by_its_own_central_crop(exported):
    _, images, run, _ = exported
    rows = pq.read_table(run.evaluation / "samples.parquet")
    np.testing.assert_allclose(np.stack(rows["scores"].to_pylist()), scores_by_hand(run, images), rtol=1e-4)


def test_the_bundle_answers_images_of_each_size(exported, tmp_path):
    from deepspark_ops.predict.answers import write_answers  # TensorFlow

    source, images, run, bundle = exported
    config = PredictConfig(bundle=bundle, input=source, output=tmp_path / "p.parquet")
    write_answers(config, on_step=lambda step: None)
    scores = np.stack(pq.read_table(config.output)["scores"].to_pylist())
    np.testing.assert_allclose(scores, scores_by_hand(run, images), rtol=1e-4)


def test_a_bundle_is_scored_on_images_of_several_sizes(exported, tmp_path):
    from deepspark_ops.evaluate.metrics import read_metrics
    from deepspark_ops.export.scores.bundle_scores import score_bundle  # TensorFlow

    _, _, run, bundle = exported
    scored = score_bundle(ScoreBundleConfig(run_dir=run.root, bundle=bundle, output=tmp_path / "scored"))
    own = read_metrics(run.evaluation / "metrics.json")
    assert (scored.loss, scored.n_samples) == (pytest.approx(own.loss, rel=1e-5), N_SAMPLES)
