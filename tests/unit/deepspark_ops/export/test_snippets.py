"""Code for loading a bundle; ``tests/integration/export/test_bundle.py`` runs the code for a bundle of images."""

import ast

import pytest

from deepspark_ops.export.manifest import InputContract, parse_manifest
from deepspark_ops.export.snippets import LIBRARIES, snippet_of, spark_snippet
from tests.reference.bundles import make_bundle

DEPLOY = """
name: "n"
layer { name: "left-eye" type: "Input" top: "left-eye" input_param { shape { dim: 1 dim: 3 dim: 227 dim: 227 } } }
layer { name: "model" type: "Input" top: "model" input_param { shape { dim: 1 dim: 4 } } }
layer { name: "prob" type: "Softmax" bottom: "left-eye" top: "prob'; import os #" }
"""
BLOB = "prob'; import os #"
NAME = 'it\'s a "name"\n'


def contract(name, shape, **fields):
    return {"name": name, "shape": shape, "axes": "N, H, W, C", "dtype": "uint8", "channels": "RGB",
            "preprocessing": ("subtract 1\nimport os",), **fields}  # fmt: skip


@pytest.fixture
def bundle(tmp_path):
    folder = make_bundle(tmp_path / NAME.strip(), labels=("a", "b"))
    (folder / "deploy.prototxt").write_text(DEPLOY)
    return folder


def manifest_of(bundle, *inputs):
    contracts = tuple(InputContract.model_validate(fields) for fields in inputs)
    manifest = parse_manifest(bundle)
    outputs = tuple(output.model_copy(update={"blob": BLOB}) for output in manifest.outputs)
    return manifest.model_copy(update={"inputs": contracts, "outputs": outputs})


def test_any_size_is_filled_by_what_the_net_computes_on_and_odd_names_stay_names(bundle):
    manifest = manifest_of(
        bundle, contract("left-eye", (-1, -1, -1, 3)), contract("model", (-1, 4), dtype="float32", channels="")
    )
    text = snippet_of("TensorFlow", bundle, manifest)
    assert "input_0 = np.zeros((1, 227, 227, 3), np.uint8)  # N, H, W, C; RGB; any H and W" in text
    assert "input_1 = np.zeros((1, 4), np.float32)" in text
    assert "(**{'left-eye': tf.constant(input_0), 'model': tf.constant(input_1)})" in text
    assert "labels = Path(bundle" in text


def test_snippets_are_python_whatever_the_names_are(bundle):
    manifest = manifest_of(bundle, contract("left-eye", (-1, -1, -1, 3)), contract("model", (-1, 4)))
    for inputs in (
        [contract("left-eye", (-1, -1, -1, 3))],
        [contract("a\n`\"'", (-1, 4), axes="N"), contract("model", (-1, 4))],
    ):
        tree = ast.parse(spark_snippet(bundle, manifest_of(bundle, *inputs)))
        assert any(isinstance(node, ast.Constant) and node.value == str(bundle) for node in ast.walk(tree))
    for name in LIBRARIES:
        text = snippet_of(name, bundle, manifest)
        tree = ast.parse(text)
        imported = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
        assert set(imported) <= {"numpy", "tensorflow", "cv2", "keras", "onnxruntime"}
        (path,) = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == str(bundle)
        ]
        assert path == str(bundle)
    assert "blue first" in snippet_of("OpenCV or Caffe", bundle, manifest)
