"""The example own_python_layer: values follow the formula, and the layer learns in a net."""

import numpy as np
import pytest

from caffe_import.files.caffemodel import read_caffemodel
from caffe_import.files.prototxt import read_net
from caffe_import.net.net_spec import build_net_spec
from caffe_import.net.python_layers import allow_python_modules
from caffe_import.tf_graph.predict import compile_forward
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.named_files import NamedFiles
from deepspark_ops.config.train import TrainConfig
from tests.integration.train.in_process import run_in_process
from tests.paths import ROOT
from tests.reference.ingest_in_process import ingest

pytestmark = pytest.mark.tf
FOLDER = ROOT / "examples" / "own_python_layer"


@pytest.fixture(autouse=True)
def _as_the_readme_says(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(FOLDER)
    allow_python_modules(["learned_swish"])


def test_the_values_are_the_formulas(tmp_path):
    text = """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 2 dim: 2 } } }
    layer { name: "y" type: "Python" bottom: "x" top: "y"
      python_param { module: "learned_swish" layer: "LearnedSwish" param_str: "0.5" } }"""
    (tmp_path / "net.prototxt").write_text(text)
    net = build_net_spec(read_net(tmp_path / "net.prototxt"), phase="TEST")
    forward = compile_forward(net, n_threads=1)
    x = np.random.default_rng(1).normal(size=(2, 3, 2, 2)).astype(np.float32)
    beta = np.float32([0.5, -1, 3])
    (top,) = forward(beta, {"x": x}).values()
    for n, c, h, w in np.ndindex(x.shape):
        value = float(x[n, c, h, w])
        assert top[n, c, h, w] == pytest.approx(value / (1 + np.exp(-float(beta[c]) * value)), rel=1e-5)


def test_a_net_with_it_learns(tmp_path):
    config = IngestConfig(
        source=ROOT / "examples" / "digits" / "digits8x8-images-idx3-ubyte.gz",
        output=tmp_path / "digits",
        resize_height=16,
        resize_width=16,
        max_pixel=16,
    )
    ingest(config, tmp_path / "work")
    finished = run_in_process(
        TrainConfig(
            solver=FOLDER / "swish_solver.prototxt",
            overrides="max_iter: 200 snapshot: 200",
            dataset=tmp_path / "digits",
            run_dir=tmp_path / "run",
            n_workers=1,
            threads_per_worker=1,
            named_files=NamedFiles(python_layers=("learned_swish",)),
        )
    )
    accuracy = [event.data["accuracy"] for event in finished.events("evaluation")]
    assert accuracy[0] < 0.3
    assert accuracy[-1] > 0.9
    (weights,) = (tmp_path / "run" / "snapshots").glob("*.caffemodel")
    (beta,) = read_caffemodel(weights)["swish1"]
    assert beta.shape == (16,)
    assert np.abs(beta - 1).max() > 0.01
