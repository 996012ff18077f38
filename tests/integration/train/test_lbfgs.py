"""L-BFGS through the whole loop: the minimum of a convex problem that scipy finds too, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.train.setup.run_setup import prepare_run
from tests.integration.small_run import make_dataset
from tests.integration.train.in_process import run_in_process

pytestmark = pytest.mark.tf

NET = """
layer { name: "data" type: "Data" top: "data" top: "label" transform_param { scale: 0.01 %s }
  data_param { source: "none" batch_size: 16 backend: LMDB } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE kernel_size: 7 stride: 7 } }
%s
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "%s" base_lr: 100 momentum: 0.9 lr_policy: "fixed" weight_decay: 0.01 max_iter: %d display: 1 random_seed: 3
snapshot_prefix: "softmax"
"""
DROPOUT = 'layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" }'


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[np.ndarray, np.ndarray]]:
    root = tmp_path_factory.mktemp("dataset")
    return root, make_dataset(root, n_train=64)["train"]


def lbfgs_config(folder: Path, dataset: Path, *, transform: str = "", layer: str = "", max_iter: int = 300, **fields):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.prototxt").write_text(NET % (transform, layer))
    (folder / "solver.prototxt").write_text(SOLVER % (folder / "net.prototxt", max_iter))
    values = {"solver": folder / "solver.prototxt", "dataset": dataset, "run_dir": folder / "run", "strategy": "lbfgs"}
    return TrainConfig(**{**values, **fields})


def objective(images: np.ndarray, labels: np.ndarray):
    """Softmax regression on means of 7 x 7 pixels, with weight decay, in float64."""
    pooled = np.zeros((len(images), 3, 2, 3))
    for i in range(2):
        for j in range(3):  # Caffe's pooling rounds up: the last column's window has two pixels of width
            pooled[..., i, j] = images[:, :, 7 * i : 7 * i + 7, 7 * j : 7 * j + 7].mean(axis=(2, 3)) * 0.01
    features, targets = pooled.reshape(len(images), -1), np.eye(3)[labels]

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        weights, bias = x[:54].reshape(3, 18), x[54:]
        scores = features @ weights.T + bias
        scores -= scores.max(axis=1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        errors = (np.exp(logs) - targets) / len(labels)
        gradient = np.concatenate([(errors.T @ features).ravel(), errors.sum(axis=0)])
        return float(-(targets * logs).sum() / len(labels) + 0.005 * x @ x), gradient + 0.01 * x

    return evaluate


@pytest.mark.parametrize("n_workers", [1, 2])
def test_minimum_of_a_convex_problem_is_scipys(samples, tmp_path: Path, n_workers: int) -> None:
    dataset, (images, labels) = samples
    finished = run_in_process(lbfgs_config(tmp_path, dataset, n_workers=n_workers))
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"] * n_workers, finished.outcomes
    function = objective(images, labels)
    expected = minimize(function, np.zeros(57), jac=True, method="L-BFGS-B", options={"ftol": 1e-12, "maxiter": 1000})
    minimum = function(finished.center.astype(np.float64))[0]
    assert minimum == pytest.approx(expected.fun, rel=1e-4)  # losses and gradients of float32
    assert function(finished.start.center.astype(np.float64))[0] > 1.2 * minimum
    assert any("base_lr" in note for note in finished.prepared.notes)
    assert {event.data["learning_rate"] for event in finished.events("loss")} == {0.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"layer": DROPOUT},
            'strategy=lbfgs: layer "drop" (Dropout) drops values at random; lbfgs needs the same loss',
        ),
        ({"transform": "mirror: true"}, 'layer "data" (Data) its transform_param mirrors or crops at random'),
        ({"transform": "crop_size: 12"}, 'layer "data" (Data) its transform_param mirrors or crops at random'),
        (
            {"layer": 'layer { name: "bn" type: "BatchNorm" bottom: "pool" top: "pool" }'},
            'layer "bn" (BatchNorm) moves its statistics with every batch; use_global_stats: true keeps them',
        ),
    ],
)
def test_what_is_random_is_refused_by_name(samples, tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare_run(lbfgs_config(tmp_path, samples[0], **changes))
    assert message in str(caught.value)


STEEP = """
layer { name: "data" type: "Data" top: "data" top: "label" transform_param { scale: 0.01 }
  data_param { source: "none" batch_size: 16 backend: LMDB } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE kernel_size: 7 stride: 7 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 1 } }
layer { name: "steep" type: "Exp" bottom: "ip" top: "steep" exp_param { scale: 300 } }
layer { name: "wanted" type: "Power" bottom: "label" top: "wanted" power_param { shift: 5 } }
layer { name: "flat" type: "Flatten" bottom: "steep" top: "flat" flatten_param { axis: 0 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "flat" bottom: "wanted" top: "loss" }
"""


def test_a_first_trial_that_overflows_is_stepped_back_from(samples, tmp_path: Path) -> None:
    """At the start exp(0) is to become 6; a first step of norm 1 makes it exp(300 * 0.9)."""
    config = lbfgs_config(tmp_path, samples[0], n_workers=1, max_iter=200)
    (tmp_path / "net.prototxt").write_text(STEEP)
    finished = run_in_process(config)
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"], finished.outcomes
    losses = [float(event.data["loss"]) for event in finished.events("loss")]
    assert not np.isfinite(losses).all()
    assert losses[-1] < 0.5 < losses[0]
