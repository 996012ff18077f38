"""Raw inputs of every kind get the answers of the run's evaluation, record by record."""

import base64
import json
import zipfile

import cv2
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepspark_ops.config.commands.predict import FeaturesConfig, PredictConfig, RawImageConfig
from deepspark_ops.config.commands.serve import ServeConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.export.manifest import IMAGE_AXES, InputContract
from deepspark_ops.export.snippets import image_snippet
from deepspark_ops.ingest.commit import commit_dataset
from deepspark_ops.ingest.image_plan import plan_images
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.ingest.shard_task import run_shard_task
from deepspark_ops.ingest.tables.columns import choose_roles, columns_of
from deepspark_ops.ingest.tables.image_rows import index_images, pack_images
from deepspark_ops.predict import spark_udf
from deepspark_ops.predict.answers import write_answers
from deepspark_ops.predict.pixel_range import PixelWatch
from deepspark_ops.serve.request import samples_of_json, samples_of_pictures
from deepspark_ops.serve.start import load_served
from deepspark_ops.shards.manifest import DatasetRoot, read_manifest, read_root, write_root
from deepspark_ops.shards.reader import open_dataset
from tests.integration.predict.small_bundles import make_small_bundle
from tests.integration.small_run import train_here
from tests.paths import FIXTURES
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_cifar, write_idx, write_images, write_tar
from tests.reference.table_files import ingest_parts, write_table

pytestmark = pytest.mark.tf

NET = """
name: "small"
layer {{ name: "data" type: "{layer}" top: "data" top: "label" {transform}
  {param} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param {{ num_output: 12 weight_filler {{ type: "gaussian" std: {std} }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
SOLVER = 'net: "{net}" base_lr: 0 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "small" random_seed: 3'
SCALED = "transform_param { scale: 0.01 mean_value: 100 }"
CROPPED = "transform_param { scale: 0.01 mean_value: 100 crop_size: 9 }"
LMDB = 'data_param { source: "none" batch_size: 4 backend: LMDB }'


def untrained_run(folder, dataset, *, transform=SCALED, layer="Data", param=LMDB, std=0.1):
    """A run of no steps: the weights are drawn by the fillers."""
    folder.mkdir(parents=True, exist_ok=True)
    net, solver = folder / "net.prototxt", folder / "solver.prototxt"
    net.write_text(NET.format(layer=layer, param=param, transform=transform, std=std))
    solver.write_text(SOLVER.format(net=net))
    return train_here(solver, folder / "run", dataset, n_steps=0)


def evaluated(run):
    """Rows of the run's evaluation, in the dataset's order, and the bundle."""
    from deepspark_ops.evaluate.stage import run_evaluate  # TensorFlow
    from deepspark_ops.export.bundle import write_bundle

    run_evaluate(EvaluateConfig(run_dir=run.root, scores=True, worst=0))
    rows = pq.read_table(run.evaluation / "samples.parquet").to_pylist()
    bundle = write_bundle(ExportConfig(run_dir=run.root, formats="saved_model,caffe"), on_step=lambda step: None)
    return rows, bundle.folder


def predicted(bundle, source, output, **options):
    messages = []
    config = PredictConfig(bundle=bundle, input=source, output=output, **options)
    write_answers(config, on_step=messages.append)
    return pq.read_table(output).to_pylist(), messages


def require_equal(answers, rows, *, rtol=1e-4):
    """Compare answers with an evaluation: by the keys of an LMDB, which end in the records' names, else in order."""
    assert [row["error"] for row in answers] == [None] * len(rows)
    of_name = {row["name"].partition("_")[2]: row for row in rows if row["name"] is not None}
    rows = [of_name[answer["id"]] for answer in answers] if answers[0]["id"] in of_name else rows
    scores = np.array([row["scores"] for row in rows])
    assert np.ptp(scores, axis=0).max() > 0.01  # an answer that is the same for all would show nothing
    np.testing.assert_allclose(np.array([row["scores"] for row in answers]), scores, rtol=rtol, atol=1e-6)
    assert [row["predicted"] for row in answers] == [row["predicted"] for row in rows]


def photographs(folder, suffix=".jpg"):
    """Six smooth colour pictures of several sizes, in folders of three classes."""
    for number in range(6):
        rng = np.random.default_rng(number)
        small = rng.integers(0, 256, (5, 4, 3), dtype=np.uint8)
        size = (70 + 20 * number, 90 + 10 * number)
        path = folder / "abc"[number % 3] / f"{number}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), cv2.resize(small, size, interpolation=cv2.INTER_CUBIC))
    return folder


def digits(folder):
    folder.mkdir(parents=True)
    values = np.random.default_rng(0).integers(0, 17, (9, 8, 8))
    write_idx(folder / "a-labels-idx1-ubyte", np.arange(9) % 3)
    return write_idx(folder / "a-images-idx3-ubyte", values)


def zipped(folder):
    photographs(folder / "raw")
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for path in sorted((folder / "raw").rglob("*.jpg")):
            archive.write(path, f"pictures/{path.relative_to(folder / 'raw')}")
    return f"{folder / 'a.zip'}::pictures"


def tarred(folder):
    listed = write_images(folder / "raw", 6)
    files = {f"d/img/{number}.png": (listed.parent / f"img/{number}.png").read_bytes() for number in range(6)}
    return f"{write_tar(folder / 'a.tar.gz', {**files, 'd/list.txt': listed.read_bytes()})}::d/list.txt"


def cifar(folder):
    folder.mkdir(parents=True)
    write_cifar(folder / "data_batch_1.bin", [0, 1, 2, 1, 0])
    return folder


def rows_of_floats(folder):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    with h5py.File(folder / "a.h5", "w") as file:
        file["data"] = rng.normal(size=(7, 1, 6, 5)).astype(np.float32) * 100
        file["label"] = np.arange(7) % 3
    (folder / "list.txt").write_text(f"{folder / 'a.h5'}\n")
    return folder / "list.txt"


def picture_table(folder):
    paths = sorted(photographs(folder / "raw").rglob("*.jpg"))
    names = [str(path.relative_to(folder / "raw")) for path in paths]
    table = pa.table({"id": names, "image": [path.read_bytes() for path in paths], "label": [0, 0, 1, 1, 2, 2]})
    return write_table(folder / "t.parquet", table)


RESIZED = {"resize_height": 11, "resize_width": 13}
# Each kind of source, and each option beside each of the two transforms; not every kind with every option.
CASES = {
    "idx": (digits, {"max_pixel": 16, **RESIZED}, SCALED, {}),
    "idx_of_its_size": (digits, {"max_pixel": 16}, SCALED, {}),
    "class_folders": (photographs, RESIZED, SCALED, {}),
    "class_folders_in_hdf5": (photographs, {"shard_format": "hdf5", **RESIZED}, CROPPED, {}),
    "class_folders_compressed": (photographs, {"encoded": True, "scaled_decoding": True, **RESIZED}, CROPPED, {}),
    "image_list_cropped": (lambda folder: write_images(folder, 6, size=(12, 14)), {}, CROPPED, {}),
    "zip": (zipped, {"gray": True, **RESIZED}, CROPPED, {}),
    "tar": (tarred, {"max_pixel": 255, **RESIZED}, SCALED, {}),
    "lmdb_raw": (lambda _: FIXTURES / "caffe" / "data" / "lmdb_raw", {"gray": True}, SCALED, {}),
    "lmdb_encoded": (lambda _: FIXTURES / "caffe" / "data" / "lmdb_jpg", RESIZED, SCALED, {}),
    "leveldb": (lambda _: FIXTURES / "caffe" / "data" / "leveldb_raw", RESIZED, SCALED, {}),
    "cifar": (cifar, RESIZED, CROPPED, {}),
    "tfrecord": (lambda _: FIXTURES / "tfrecord" / "images.tfrecord.gz", RESIZED, CROPPED, {}),
    "hdf5": (rows_of_floats, {}, SCALED, {}),
}


# One of two kinds that differ only in how files are opened: the readers' tests have the rest.
OF_ONE_READER = {"idx_of_its_size", "class_folders", "tar", "lmdb_raw", "leveldb", "cifar", "tfrecord"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.long if kind in OF_ONE_READER else []) for kind in CASES]
)
def test_raw_records_get_the_answers_of_the_evaluation(tmp_path, kind):
    write, options, transform, predict_options = CASES[kind]
    source = write(tmp_path / "source")
    config = IngestConfig(source=source, test_source=source, output=tmp_path / "data", shuffle=False, **options)
    ingest(config, tmp_path / "work")
    rows, bundle = evaluated(untrained_run(tmp_path / "net", config.output, transform=transform))
    answers, _ = predicted(bundle, source, tmp_path / "answers.parquet", **predict_options)
    require_equal(answers, rows)
    answers_of_dataset, _ = predicted(
        bundle, config.output, tmp_path / "again.parquet"
    )  # what is stored is taken as it is
    np.testing.assert_allclose(
        [row["scores"] for row in answers_of_dataset], [row["scores"] for row in rows], rtol=1e-4, atol=1e-6
    )


def a_mixed_table():
    """Features of several types far from zero, among columns that are none, with gaps; another order than by name."""
    rng = np.random.default_rng(0)
    gaps = rng.random(12) < 0.2
    return pa.table(
        {
            "weight": rng.random(12),
            "z": pa.array(rng.normal(5000.0, 3.0, 12), mask=gaps),
            "is_new": rng.random(12) < 0.5,
            "code": rng.integers(0, 9, 12),
            "parts": list(rng.normal(size=(12, 2))),
            "a": pa.array(rng.normal(-1.0, 0.01, 12)),
            "label": np.arange(12) % 3,
        }
    )


TABLES = {
    "standardized": ({"feature_columns": "z,is_new,a"}, ("parquet", "csv", "orc", "jsonl"), 0.5),
    "as_it_is": (
        {"feature_columns": "a,code,is_new", "standardize": False, "missing": "refuse"},
        ("parquet", "csv", "orc", "jsonl"),
        0.2,
    ),
    "with_arrays": ({"feature_columns": "a,parts,z", "missing": "zero"}, ("parquet", "orc", "jsonl"), 0.5),
}


@pytest.mark.parametrize("kind", TABLES)
def test_raw_rows_get_the_answers_of_the_evaluation(tmp_path, kind):
    options, endings, std = TABLES[kind]
    table = a_mixed_table()
    source = write_table(tmp_path / "t.parquet", table)
    config = IngestConfig(source=source, output=tmp_path / "data", shuffle=False, test_fraction=0.0, **options)
    ingest_parts(config, [table], tmp_path / "work")
    (config.output / "test").symlink_to("train")  # all rows are scored, in order
    train = read_root(config.output).splits["train"]
    write_root(config.output, DatasetRoot(splits={"train": train, "test": train}))
    param = 'hdf5_data_param { source: "none" batch_size: 4 }'
    rows, bundle = evaluated(
        untrained_run(tmp_path / "net", config.output, layer="HDF5Data", transform="", param=param, std=std)
    )
    for ending in endings:
        raw_table = table if ending != "csv" else table.drop(["parts"])
        answers, _ = predicted(bundle, write_table(tmp_path / f"raw.{ending}", raw_table), tmp_path / "answers.parquet")
        require_equal(answers, rows, rtol=1e-3)  # a request is float32, which keeps 5000 +- 3 to 0.0005
    answers_of_dataset, _ = predicted(bundle, config.output, tmp_path / "again.parquet")
    np.testing.assert_allclose(
        [row["scores"] for row in answers_of_dataset], [row["scores"] for row in rows], rtol=1e-3, atol=1e-5
    )
    with pytest.raises(ConfigError, match=r"no column a; the net was trained on .* feature_columns names others"):
        predicted(bundle, write_table(tmp_path / "less.parquet", table.drop(["a"])), tmp_path / "no.parquet")


LABELS_NET = """
name: "labels"
layer { name: "d" type: "HDF5Data" top: "data" top: "label" hdf5_data_param { source: "none" batch_size: 4 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 2 weight_filler { type: "gaussian" std: 3 } } }
layer { name: "loss" type: "SigmoidCrossEntropyLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def test_labels_have_the_names_of_the_tables_columns(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table(
        {"a": rng.random(12), "b": rng.random(12), "red": np.arange(12) % 2, "new": np.arange(12) % 3 // 2}
    )
    source = write_table(tmp_path / "t.parquet", table)
    config = IngestConfig(source=source, output=tmp_path / "data", label_column="red,new", test_fraction=0.0)
    ingest_parts(config, [table], tmp_path / "work")
    (config.output / "test").symlink_to("train")
    train = read_root(config.output).splits["train"]
    write_root(config.output, DatasetRoot(splits={"train": train, "test": train}))
    (tmp_path / "net.prototxt").write_text(LABELS_NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER.format(net=tmp_path / "net.prototxt"))
    _, bundle = evaluated(train_here(tmp_path / "solver.prototxt", tmp_path / "run", config.output, n_steps=0))
    answers, _ = predicted(bundle, source, tmp_path / "answers.parquet")
    names = [["red", "new"][label] for row in answers for label in row["predicted"]]
    assert set(names) == {"red", "new"}
    assert [name for row in answers for name in row["predicted_names"]] == names


@pytest.mark.parametrize("options", [{}, {"encoded": True}])
def test_pictures_in_a_table_get_the_answers_of_the_evaluation(tmp_path, options):
    source = picture_table(tmp_path)
    config = IngestConfig(
        source=source, test_source=source, output=tmp_path / "data", shuffle=False, gray=True, **RESIZED, **options
    )
    work = tmp_path / "work"
    work.mkdir()
    table = pq.read_table(source)
    roles = choose_roles(config, columns_of(table.schema))
    parts = [pack_images(table.to_batches(), roles, work, 0)]

    def read_index(config, source, source_format, work):
        return index_images(parts, roles, source, tmp_path, work)

    recipe = make_recipe(config)
    plan = plan_images(config, recipe, work, read_index)
    commit_dataset(config, recipe, plan, [run_shard_task(task) for task in plan.tasks])
    rows, bundle = evaluated(untrained_run(tmp_path / "net", config.output, transform=CROPPED))
    answers, _ = predicted(bundle, source, tmp_path / "answers.parquet")
    require_equal(answers, rows)


def test_pictures_that_a_net_reads_itself_get_the_answers_of_the_evaluation(tmp_path):
    folder = photographs(tmp_path / "pictures")
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*.jpg"))
    (folder / "list.txt").write_text("".join(f"{path} {at % 3}\n" for at, path in enumerate(paths)))
    param = (
        f'image_data_param {{ source: "{folder}/list.txt" root_folder: "{folder}/" batch_size: 4'
        " new_height: 11 new_width: 13 is_color: false }"
    )
    rows, bundle = evaluated(untrained_run(tmp_path / "net", None, layer="ImageData", transform=CROPPED, param=param))
    answers, _ = predicted(bundle, folder / "list.txt", tmp_path / "answers.parquet")
    require_equal(answers, rows)


@pytest.mark.parametrize(
    ("options", "suffix"),
    [(RESIZED, ".jpg"), ({"gray": True, **RESIZED}, ".png"), ({"encoded": True, **RESIZED}, ".jpg")],
)
def test_the_cards_code_makes_the_samples_that_ingestion_made(tmp_path, options, suffix):
    source = photographs(tmp_path / "source", suffix)
    config = IngestConfig(source=source, test_source=source, output=tmp_path / "data", shuffle=False, **options)
    ingest(config, tmp_path / "work")
    with open_dataset(config.output / "test") as dataset:
        stored = dataset.read(0, 0, dataset.n_samples)[0]
        images = dataset.preprocessing
    channels = {1: "gray", 3: "RGB"}[stored.shape[1]]
    contract = InputContract(
        name="images", shape=(-1, 11, 13, 3), axes=IMAGE_AXES, dtype="uint8", channels=channels, preprocessing=(),
        images=images,
    )  # fmt: skip
    names: dict = {}
    exec(image_snippet(contract), names)
    samples = np.stack([names["sample_of"](str(path)) for path in sorted(source.rglob(f"*{suffix}"))])
    np.testing.assert_array_equal(samples, stored[:, ::-1].transpose(0, 2, 3, 1))


def test_every_place_that_takes_raw_images_gives_the_answers_of_the_evaluation(tmp_path):
    """Spark's function of the stages, the server, and features; ``predict`` is above."""
    source = photographs(tmp_path / "source", ".png")
    options = {"gray": True, "max_pixel": 255, **RESIZED}
    config = IngestConfig(source=source, test_source=source, output=tmp_path / "data", shuffle=False, **options)
    ingest(config, tmp_path / "work")
    rows, bundle = evaluated(untrained_run(tmp_path / "net", config.output, transform=CROPPED))
    expected = np.array([row["scores"] for row in rows])
    paths = sorted(source.rglob("*.png"))
    contents = [path.read_bytes() for path in paths]

    form, answer = spark_udf._model(str(bundle), "", 1, 5, RawImageConfig())
    for cells in (contents, [str(path) for path in paths]):
        records = spark_udf._records((pd.Series(cells, dtype=object),), form)
        answered = spark_udf._answered(records, form, answer, ["scores", "error"], PixelWatch(form))
        np.testing.assert_allclose(np.stack(answered["scores"]), expected, rtol=1e-4, atol=1e-6)

    model = load_served(ServeConfig(bundle=bundle))
    uploads = samples_of_pictures([(path.name, content) for path, content in zip(paths, contents, strict=True)], form)
    np.testing.assert_allclose(model.answers(uploads)["scores"], expected, rtol=1e-4, atol=1e-6)
    encoded = [{"b64": base64.b64encode(content).decode()} for content in contents]
    in_json = samples_of_json(json.dumps({"instances": encoded}).encode(), form)
    np.testing.assert_allclose(model.answers(in_json)["scores"], expected, rtol=1e-4, atol=1e-6)

    blobs = []
    for input_path in (source, config.output):
        features = FeaturesConfig(bundle=bundle, input=input_path, output=tmp_path / "f.parquet", blobs="ip")
        write_answers(features, on_step=lambda step: None)
        blobs.append(np.stack(pq.read_table(features.output)["ip"].to_pylist()))
    np.testing.assert_allclose(blobs[0], blobs[1], rtol=1e-4, atol=1e-5)
    assert np.ptp(blobs[0], axis=0).max() > 0.01


def test_a_dataset_of_another_preprocessing_is_named_and_not_scaled_again(tmp_path, caplog):
    source = digits(tmp_path / "source")
    folders = {}
    for largest in (16, 255):
        config = IngestConfig(source=source, test_source=source, output=tmp_path / f"data{largest}", max_pixel=largest)
        ingest(config, tmp_path / "work")
        folders[largest] = config.output
    _, bundle = evaluated(untrained_run(tmp_path / "net", folders[16]))
    caplog.clear()
    predicted(bundle, folders[16], tmp_path / "a.parquet")
    assert "ingested otherwise" not in caplog.text
    predicted(bundle, folders[255], tmp_path / "a.parquet")
    assert "the dataset was ingested otherwise than the training images: max_pixel=255 (trained: 16)" in caplog.text
    card = (bundle / "README.md").read_text()
    assert "Ingestion did this to the training images: scale pixels so that 16 becomes 255, rounded." in card
    assert "After these steps the training pixels are from 0 to 255." in card


def test_raw_values_of_too_small_a_range_are_warned_of(tmp_path):
    """The net is trained on pixels 0 to 255; raw digits have 0 to 16 and need ``max_pixel``."""
    source = digits(tmp_path / "source")
    config = IngestConfig(source=source, test_source=source, output=tmp_path / "data", max_pixel=16)
    ingest(config, tmp_path / "work")
    with open_dataset(config.output / "train") as dataset:
        images = dataset.read(0, 0, dataset.n_samples)[0]
    scaled = write_idx(tmp_path / "scaled-images-idx3-ubyte", images[:, 0])
    write_idx(tmp_path / "scaled-labels-idx1-ubyte", np.arange(len(images)) % 3)
    config = IngestConfig(source=scaled, test_source=scaled, output=tmp_path / "data255")
    ingest(config, tmp_path / "work255")
    assert read_manifest(config.output / "test").pixels.pixel_range == (0.0, 255.0)
    _, bundle = evaluated(untrained_run(tmp_path / "net", config.output))
    warning = "9 of 9 inputs: pixels are 0 to 16, those of the training images were 0 to 255; answers may be wrong"

    def warnings(kind, **options):
        options = {"bundle": bundle, "input": source, "output": tmp_path / "a.parquet", **options}
        return " ".join(write_answers(kind(**options), on_step=lambda step: None).warnings())

    assert warning in warnings(PredictConfig)
    assert "max_pixel=16 (--max-pixel 16)" in warnings(PredictConfig)
    assert warning in warnings(FeaturesConfig, blobs="ip")
    assert warnings(PredictConfig, max_pixel=16) == ""
    assert warnings(PredictConfig, input=scaled) == ""
    assert warnings(PredictConfig, input=config.output) == ""


def test_a_converted_bundle_says_that_nobody_knows(tmp_path, caplog):
    bundle = make_small_bundle(tmp_path, "segmentation")
    assert (
        "What was done to the training images before they were such samples is not known"
        in (bundle / "README.md").read_text()
    )
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((3, 2), np.uint8))
    predicted(bundle, tmp_path / "a.png", tmp_path / "a.parquet")
    assert "the bundle does not say what was done to its training images" in caplog.text
