"""A bundle answers files, lists, tables and datasets: as its SavedModel, and as the run's own evaluation."""

import threading
from contextlib import closing

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from caffe_import.data.lmdb_source import LmdbSource
from caffe_import.files.caffemodel import read_caffemodel
from caffe_import.files.mean_file import read_mean
from caffe_import.tf_graph.predict import FixedForward
from deepspark_ops.config.commands.predict import FeaturesConfig, PredictConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.evaluation_folder import read_evaluation
from deepspark_ops.export.tf_saved_model import load_saved_model
from deepspark_ops.predict.__main__ import main
from deepspark_ops.predict.answers import write_answers
from tests.integration.small_run import CLASS_NAMES

pytestmark = pytest.mark.tf


def predicted(bundle, source, output, **options):
    config = PredictConfig(bundle=bundle, input=source, output=output, **options)
    summary = write_answers(config, on_step=lambda step: None)
    return summary, pq.read_table(output).to_pydict()


def scores_of(bundle, images):
    """The SavedModel's own answers: it takes (N, H, W, C), red first."""
    rgb = np.ascontiguousarray(images[:, ::-1].transpose(0, 2, 3, 1))
    return load_saved_model(bundle / "saved_model")({"images": rgb})["scores"]


def test_a_dataset_is_answered_as_by_the_saved_model_and_the_evaluation(exported, tmp_path):
    root, images, run, bundle, _ = exported
    summary, rows = predicted(bundle, root, tmp_path / "p.parquet", batch_size=20, top_k=2)
    expected = scores_of(bundle, images)
    assert (summary.n_records, summary.n_errors) == (53, 0)
    assert rows["id"] == [str(number) for number in range(53)]
    np.testing.assert_allclose(np.stack(rows["scores"]), expected, rtol=1e-5, atol=1e-7)
    answers = read_evaluation(run.evaluation).samples.answers
    assert rows["predicted"] == answers.predicted.tolist()
    assert rows["predicted_name"] == [CLASS_NAMES[label] for label in answers.predicted]
    np.testing.assert_allclose(rows["probability"], expected.max(axis=1), rtol=1e-5)
    order = np.argsort(-expected, axis=1)[:, :2]
    assert rows["top_classes"] == order.tolist()
    assert rows["top_names"] == [[CLASS_NAMES[label] for label in row] for row in order]
    assert rows["error"] == [None] * 53


def test_files_lists_and_tables_of_the_same_images_get_the_same_answers(exported, tmp_path):
    _, images, _, bundle, folder = exported
    expected = scores_of(bundle, images)
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))
    by_path = np.array([int(path[-7:-4]) for path in paths])
    (tmp_path / "list.txt").write_text("".join(f"{path} {number}\n" for number, path in enumerate(paths)))
    contents = [(folder / path).read_bytes() for path in paths]
    pq.write_table(pa.table({"key": paths, "png": contents, "label": [1] * 53}), tmp_path / "bytes.parquet")
    cells = [{"bytes": content, "path": path} for content, path in zip(contents, paths, strict=True)]
    pq.write_table(pa.table({"image": cells}), tmp_path / "structs.parquet")
    pa.csv.write_csv(pa.table({"path": paths, "label": [1] * 53}), tmp_path / "paths.csv")
    for source, options in [
        (folder, {}),
        (tmp_path / "list.txt", {"root_folder": folder}),
        (tmp_path / "bytes.parquet", {"id_column": "key"}),
        (tmp_path / "structs.parquet", {}),
        (tmp_path / "paths.csv", {"root_folder": folder}),
    ]:
        summary, rows = predicted(bundle, source, tmp_path / "p.parquet", **options)
        assert (rows["id"], summary.n_errors) == (paths, 0), source
        np.testing.assert_allclose(np.stack(rows["scores"]), expected[by_path], rtol=1e-5, atol=1e-7)


def test_what_cannot_be_used_is_a_row_with_an_error_or_refused(exported, tmp_path):
    _, images, _, bundle, _ = exported
    cv2.imwrite(str(tmp_path / "a.png"), images[0].transpose(1, 2, 0))
    large = cv2.resize(np.ascontiguousarray(images[1].transpose(1, 2, 0)), (40, 30))
    cv2.imwrite(str(tmp_path / "d.png"), large)
    (tmp_path / "b.jpg").write_bytes(b"no image")
    (tmp_path / "list.txt").write_text("a.png 0\nb.jpg 1\nc.png 2\nd.png 0\n")
    output = tmp_path / "p.parquet"
    summary, rows = predicted(bundle, tmp_path / "list.txt", output, scores=False)
    assert (summary.n_records, summary.n_errors, len(summary.first_errors)) == (4, 2, 2)
    assert rows["error"][1] == "8 bytes that are no image OpenCV can read (JPEG, PNG, BMP, ...)"
    assert rows["error"][2] == f"No such file or directory: {tmp_path / 'c.png'}"
    assert [row is None for row in rows["predicted"]] == [False, True, True, False]
    assert "scores" not in rows
    small = cv2.resize(large, (16, 14)).transpose(2, 0, 1)
    assert rows["probability"][3] == pytest.approx(scores_of(bundle, small[np.newaxis]).max(), rel=1e-5)
    output.unlink()
    with pytest.raises(DataError, match=r"^b\.jpg: 8 bytes that are no image .*nothing was written"):
        predicted(bundle, tmp_path / "list.txt", output, strict=True)
    assert not output.exists()
    with pytest.raises(
        DataError, match=r"no input can be used \(1 of 1 failed\):\n  b\.jpg: 8 bytes that are no image"
    ):
        predicted(bundle, tmp_path / "b.jpg", output)
    assert not output.exists()


def slow_pool(bundle, image):
    """Blob pool of one stored image (C, H, W), by loops: crop, mean, scale, convolution, ReLU, max pooling."""
    mean = read_mean(bundle / "mean.binaryproto")
    x = (image.astype(np.float64) - mean)[:, 1:13, 2:14] * 0.0078125
    weights, bias = read_caffemodel(bundle / "weights.caffemodel")["conv"]
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    conv = np.empty((8, 12, 12))
    for y, column in np.ndindex(12, 12):
        conv[:, y, column] = (weights * padded[:, y : y + 3, column : column + 3]).sum(axis=(1, 2, 3)) + bias.ravel()
    conv = np.maximum(conv, 0)
    pool = np.empty((8, 6, 6))
    for y, column in np.ndindex(6, 6):
        pool[:, y, column] = conv[:, 2 * y : 2 * y + 3, 2 * column : 2 * column + 3].max(axis=(1, 2))
    return pool


def test_features_are_those_of_a_slow_net(exported, tmp_path):
    _, images, _, bundle, folder = exported
    config = FeaturesConfig(bundle=bundle, input=folder, output=tmp_path / "f.parquet", blobs="pool,ip", batch_size=20)
    summary = write_answers(config, on_step=lambda step: None)
    table = pq.read_table(tmp_path / "f.parquet")
    assert summary.n_records == 53
    assert table.schema.field("pool").metadata == {b"shape": b"8,6,6"}
    assert table.schema.names == ["id", "pool", "ip", "error"]
    weights, bias = read_caffemodel(bundle / "weights.caffemodel")["ip"]
    for row in (0, 30, 52):
        image = images[int(table["id"][row].as_py()[-7:-4])]
        pool = slow_pool(bundle, image).ravel()
        np.testing.assert_allclose(table["pool"][row].as_py(), pool, rtol=1e-4, atol=1e-5)
        expected = weights.reshape(3, -1) @ pool + bias.ravel()
        np.testing.assert_allclose(table["ip"][row].as_py(), expected, rtol=1e-4, atol=1e-4)


def test_two_batches_of_features_are_computed_at_a_time(exported, tmp_path, monkeypatch):
    _, _, _, bundle, folder = exported
    config = {"bundle": bundle, "input": folder, "blobs": "ip", "batch_size": 9}  # 53 images: 6 batches
    serial, together = tmp_path / "alone.parquet", tmp_path / "together.parquet"
    write_answers(FeaturesConfig(**config, output=serial, threads=1), on_step=lambda step: None)
    at_once = threading.Barrier(2)
    forward = FixedForward.__call__

    def two_at_once(self, feeds):
        at_once.wait(60)  # an error unless two passes run at the same time
        return forward(self, feeds)

    monkeypatch.setattr(FixedForward, "__call__", two_at_once)
    write_answers(FeaturesConfig(**config, output=together, threads=2), on_step=lambda step: None)
    assert pq.read_table(together).equals(pq.read_table(serial))


def test_features_as_databases_hold_the_numbers_of_the_parquet_file(exported, tmp_path):
    _, _, _, bundle, folder = exported
    config = {"bundle": bundle, "input": folder, "blobs": "pool,ip", "batch_size": 20}
    write_answers(FeaturesConfig(**config, output=tmp_path / "f.parquet"), on_step=lambda step: None)
    summary = write_answers(FeaturesConfig(**config, output=tmp_path / "f", format="lmdb"), on_step=lambda step: None)
    table = pq.read_table(tmp_path / "f.parquet")
    assert summary.n_records == 53
    for blob, shape in (("pool", (8, 6, 6)), ("ip", (3, 1, 1))):
        with closing(LmdbSource(tmp_path / "f" / blob)) as source:
            assert source.keys(0, 53) == [f"{index:010d}" for index in range(53)]
            np.testing.assert_array_equal(source.read(0, 53)[0], np.stack(table[blob].to_numpy()).reshape(-1, *shape))
    (tmp_path / "list.txt").write_text("0/000.png\n0/none.png\n")
    config |= {"input": tmp_path / "list.txt", "root_folder": folder, "output": tmp_path / "none", "format": "lmdb"}
    with pytest.raises(DataError, match=r"0/none.png: .*; nothing was written"):
        write_answers(FeaturesConfig(**config), on_step=lambda step: None)
    assert not list((tmp_path / "none").glob("*/*"))


def test_mistakes_are_told_before_anything_is_written(exported, tmp_path):
    _, _, _, bundle, folder = exported
    with pytest.raises(ConfigError, match=r"input=.*: no such file or folder"):
        predicted(bundle, tmp_path / "none", tmp_path / "p.parquet")
    with pytest.raises(ConfigError, match="the bundle takes 14 x 16"):
        predicted(bundle, folder, tmp_path / "p.parquet", resize_height=20, resize_width=20)
    pq.write_table(pa.table({"x": [1.0], "y": [2.0]}), tmp_path / "t.parquet")
    with pytest.raises(ConfigError, match="columns x, y; name the one with images or their paths with image_column"):
        predicted(bundle, tmp_path / "t.parquet", tmp_path / "p.parquet")
    assert not (tmp_path / "p.parquet").exists()


def test_the_process_answers_what_its_config_asks_for(exported, tmp_path, caplog):
    _, _, _, bundle, folder = exported
    (tmp_path / "list.txt").write_text("0/000.png\n0/none.png\n")
    fields = {"bundle": bundle, "input": tmp_path / "list.txt", "root_folder": folder, "output": tmp_path / "o.parquet"}
    caplog.set_level("INFO")
    for config, column in [(PredictConfig(**fields), "predicted"), (FeaturesConfig(**fields, blobs="ip"), "ip")]:
        (tmp_path / "config.json").write_text(config.model_dump_json())
        main(tmp_path / "config.json")
        rows = pq.read_table(tmp_path / "o.parquet").to_pydict()
        assert [value is None for value in rows[column]] == [False, True]
        summary, warning = caplog.records[-1], caplog.records[-2]
        assert summary.getMessage().startswith(f"output={tmp_path / 'o.parquet'} rows=2 errors=1 ")
        assert warning.levelname == "WARNING"
        assert "0/none.png: No such file or directory" in warning.getMessage()
