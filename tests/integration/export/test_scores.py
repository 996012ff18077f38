"""Evaluation scores a bundle's exported files, on the data of a run with perhaps another net."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from deepspark_ops.config.evaluate import EvaluateConfig, ScoreBundleConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.evaluation_folder import read_evaluation
from deepspark_ops.evaluate.stage import run_evaluate
from deepspark_ops.export.bundle import write_bundle
from deepspark_ops.export.manifest import InputContract, file_digest
from deepspark_ops.export.scores.bundle_scores import score_bundle
from deepspark_ops.export.served_input import as_input, channels_last
from deepspark_ops.registry.candidate import decide_against
from tests.integration.evaluate.test_stage import LINEAR
from tests.integration.small_run import CLASS_NAMES, make_dataset, make_run

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A run of a convolution net with its evaluation and bundle, and a run of another net on the same dataset."""
    root = tmp_path_factory.mktemp("dataset")
    make_dataset(root)
    run = make_run(tmp_path_factory.mktemp("conv"), root)
    run_evaluate(EvaluateConfig(run_dir=run.root))
    bundle = write_bundle(ExportConfig(run_dir=run.root, formats="saved_model,caffe"), on_step=lambda step: None).folder
    return run, bundle, make_run(tmp_path_factory.mktemp("linear"), root, net=LINEAR)


@pytest.mark.parametrize("batch_size", [53, 20])
def test_scores_are_those_of_the_run_that_made_the_bundle(exported, tmp_path, batch_size):
    run, bundle, other = exported
    config = ScoreBundleConfig(run_dir=other.root, bundle=bundle, output=tmp_path, batch_size=batch_size)
    config = config.model_copy(update={"production_rows": batch_size == 20})
    (tmp_path / "samples.parquet").write_text("of other scores")
    metrics = score_bundle(config)
    scored, expected = read_evaluation(tmp_path), read_evaluation(run.evaluation)
    assert scored.metrics == metrics
    for column in ("index", "label", "predicted", "rank"):
        np.testing.assert_array_equal(
            getattr(scored.samples.answers, column), getattr(expected.samples.answers, column)
        )
    # float32 sums in another order
    np.testing.assert_allclose(scored.samples.answers.loss, expected.samples.answers.loss, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(scored.samples.content, expected.samples.content)
    assert metrics.scored.dataset_digest == expected.metrics.scored.dataset_digest
    assert metrics.scored.weights_digest == file_digest(bundle / "weights.caffemodel")
    assert (metrics.scored.run, metrics.scored.iteration) == (run.root.name, 40)
    assert [report.name for report in metrics.classes] == list(CLASS_NAMES)
    assert metrics.speed.batch_size == batch_size
    if not config.production_rows:
        assert not (tmp_path / "samples.parquet").exists()
        return
    rows, run_rows = (pq.read_table(folder / "samples.parquet") for folder in (tmp_path, run.evaluation))
    assert rows.drop_columns(["loss", "probability", "label_probability"]) == run_rows.drop_columns(
        ["loss", "probability", "label_probability"]
    )
    assert rows["loss"].to_pylist() == scored.samples.answers.loss.tolist()


def test_a_run_of_another_net_is_compared_with_it(exported, tmp_path):
    _, bundle, other = exported
    score_bundle(ScoreBundleConfig(run_dir=other.root, bundle=bundle, output=tmp_path / "production"))
    config = EvaluateConfig(run_dir=other.root, output=tmp_path / "own", production=tmp_path / "production")
    assert "Against production" in run_evaluate(config).report_path.read_text()
    decision = decide_against(
        read_evaluation(tmp_path / "own"), read_evaluation(tmp_path / "production"), bundle, PromoteConfig()
    )
    assert decision.comparison.n_samples == 53
    assert decision.candidate_speed.machine == decision.production_speed.machine


def test_samples_of_another_size_are_refused():
    contract = contract_of((-1, 14, 16, 3))
    image = np.arange(2 * 3 * 14 * 16, dtype=np.uint8).reshape(2, 3, 14, 16)
    np.testing.assert_array_equal(as_input(image, contract)[1, 4, 5], image[1, ::-1, 4, 5])
    with pytest.raises(DataError) as caught:
        as_input(np.zeros((2, 3, 8, 16), np.uint8), contract)
    assert str(caught.value) == (
        'the bundle takes "images" of shape (14, 16, 3) (N, H, W, C without N), the samples have (8, 16, 3): it cannot '
        "be scored on these data"
    )
    assert as_input(np.zeros((2, 3, 8, 9), np.uint8), contract_of((-1, -1, -1, 3))).shape == (2, 8, 9, 3)


def contract_of(shape):
    return InputContract(name="images", shape=shape, axes="N, H, W, C", dtype="uint8", channels="RGB", preprocessing=())


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(2, 3, 7, 5), (1, 3, 1, 1), (4, 1, 6, 5), (0, 3, 4, 4), (2, 4, 3, 3)])
@pytest.mark.parametrize("is_red_first", [True, False])
def test_channels_go_last(shape, dtype, is_red_first):
    images = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    expected = np.moveaxis(images[:, ::-1] if is_red_first else images, 1, -1)
    moved = channels_last(images, is_red_first=is_red_first)
    assert (moved.dtype, moved.shape, moved.flags.c_contiguous) == (dtype, expected.shape, True)
    np.testing.assert_array_equal(moved, expected)
