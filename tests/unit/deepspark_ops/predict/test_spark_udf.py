"""Columns and answer types of ``predict_udf``, without Spark's JVM."""

import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.export.manifest import InputContract
from deepspark_ops.predict import spark_udf
from deepspark_ops.predict.samples import BundleForm, SampleForm
from tests.unit.deepspark_ops.predict.test_class_answer import read_bundle
from tests.unit.deepspark_ops.predict.test_pixel_range import form_of as image_form
from tests.unit.deepspark_ops.predict.test_pixel_range import images_between


def form_of(*names):
    contracts = [
        InputContract(name=name, shape=(-1, 2), axes="N, axis 1", dtype="float32", channels="", preprocessing=())
        for name in names
    ]
    return BundleForm(tuple(SampleForm.of(contract) for contract in contracts))


def test_the_type_has_a_field_for_every_column_of_predict(tmp_path):
    tags = {"name": "tags", "blob": "prob", "task": "multi_label", "shape": (-1, 2), "n_classes": 2}
    price = {"name": "price", "blob": "price", "task": "regression", "shape": (-1, 1), "n_classes": 0}
    manifest = read_bundle(tmp_path, tags, price, labels=("red", "new"))
    assert spark_udf.answer_type(manifest).simpleString() == (
        "struct<tags:array<float>,predicted:array<bigint>,predicted_names:array<string>,price:float,error:string>"
    )
    scores = {"name": "scores", "blob": "prob", "task": "classification", "shape": (-1, 2), "n_classes": 2}
    unnamed = read_bundle(tmp_path / "unnamed", scores, price, labels=())
    assert spark_udf.answer_type(unnamed).names == [
        "predicted", "probability", "top_classes", "top_probabilities", "scores", "price", "error"
    ]  # fmt: skip


def test_cells_become_records_of_every_input():
    cells = pd.Series([b"image", bytearray(b"image"), "a.png", None, np.float32([1, 2]), 3.0], dtype=object)
    contents = [record.content for record in spark_udf._records((cells,), form_of("x"))]
    assert contents[:4] == [b"image", b"image", Path("a.png"), None]
    assert [content.tolist() for content in contents[4:]] == [[1, 2], [3]]
    assert [record.content for record in spark_udf._records(cells, form_of("x"))][:4] == contents[:4]  # without tuple

    left_column, right = pd.Series([[1, 2], None], dtype=object), pd.Series([[3, 4], [5, 6]], dtype=object)
    struct = pd.DataFrame({"right": right, "other": right, "left": left_column})
    for spark_cells in ((left_column, right), (struct,), struct):
        first, second = [record.content for record in spark_udf._records(spark_cells, form_of("left", "right"))]
        assert {name: values.tolist() for name, values in first.items()} == {"left": [1, 2], "right": [3, 4]}
        assert (second["left"], second["right"].tolist()) == (None, [5, 6])
    for wrong in ((left_column,), (left_column, right, right), struct[["left"]]):
        with pytest.raises(DataError, match=r"takes 2 \(left, right\); give a column for each, in order"):
            spark_udf._records(wrong, form_of("left", "right"))


def test_a_worker_warns_once_of_images_of_another_range(tmp_path, caplog, monkeypatch):
    """The function of a task is called without Spark, with the columns of its partition."""
    form = image_form((0.0, 255.0))
    manifest = read_bundle(
        tmp_path, {"name": "scores", "blob": "prob", "task": "regression", "shape": (-1, 1), "n_classes": 0}, labels=()
    )
    monkeypatch.setattr(spark_udf, "_WARNED_BUNDLES", set())
    monkeypatch.setattr(spark_udf, "_model", lambda *_: (form, lambda samples: {"scores": np.zeros((len(samples), 1))}))
    monkeypatch.setattr(
        spark_udf, "read_manifest", lambda _: manifest.model_copy(update={"inputs": (form.inputs[0].contract,)})
    )
    answers = spark_udf.predict_udf(tmp_path).func
    for largest in (255, 16, 16):
        cells = pd.Series([image[0].reshape(-1).tolist() for image in images_between(0, largest)], dtype=object)
        frames = list(answers(iter([(cells[:3],), (cells[3:],)])))
        assert [len(frame) for frame in frames] == [3, 5]
        assert all(frame["error"].isna().all() for frame in frames)
    assert caplog.text.count("8 inputs of a partition: pixels are 0 to 16, those of the training images were 0") == 1


class FakeSpark:
    """An application that keeps its archives."""

    def __init__(self, master):
        self.master = master
        self.archives = []

    def addArchive(self, path):
        self.archives.append(path)


def test_an_application_gets_the_whole_bundle_once(tmp_path, monkeypatch):
    read_bundle(tmp_path, labels=("red", "new"))
    bundle = tmp_path / "bundle"
    (bundle / "saved_model").mkdir()
    (bundle / "saved_model" / "saved_model.pb").write_bytes(b"graph")
    application = FakeSpark("spark://h:7077")
    for context, is_given in ((None, False), (FakeSpark("local[2]"), False), (application, True), (application, True)):
        monkeypatch.setattr(spark_udf.SparkContext, "_active_spark_context", context)
        name = spark_udf._archive_in_spark(bundle)
        assert bool(name) == is_given
    (archive,) = application.archives
    assert archive.endswith(f"/{name}.tar#{name}")
    with tarfile.open(archive.split("#")[0]) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    files = {path.relative_to(bundle): path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
    assert len(files) > 2
    assert {path: (tmp_path / "unpacked" / path).read_bytes() for path in files} == files
    with (bundle / "manifest.json").open("a") as manifest:
        manifest.write(" ")
    assert spark_udf._archive_in_spark(bundle) != name
    assert len(application.archives) == 2
