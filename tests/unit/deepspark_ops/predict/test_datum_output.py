"""Databases of features, read by lmdb and protobuf alone, as Caffe's extract_features writes them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from caffe_import.data.lmdb_source import LmdbSource
from caffe_import.proto import caffe_pb2
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.predict import FeaturesConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.predict.datum_output import database_plans, datum_outputs
from tests.reference.lmdb_files import lmdb_records

VALUES = np.random.default_rng(0).standard_normal((1_200, 6)).astype(np.float32)


def schema_of(**shapes: str) -> pa.Schema:
    numbers = pa.list_(pa.float32())
    fields = [pa.field(blob, numbers, metadata={"shape": shape}) for blob, shape in shapes.items()]
    return pa.schema([("id", pa.string()), *fields, ("error", pa.string())])


def write_in_parts(output: Path, values: dict[str, np.ndarray], **shapes: str) -> None:
    with datum_outputs(database_plans(output, schema_of(**shapes))) as outputs:
        for start in range(0, 1_200, 500):
            outputs.add({blob: rows[start : start + 500] for blob, rows in values.items()})


def expected_records(shape: tuple[int, int, int]) -> list[tuple[bytes, bytes]]:
    """extract_features.cpp: set_height, set_width, set_channels, add_float_data; format_int(index, 10)."""
    records = []
    for index, row in enumerate(VALUES):
        datum = caffe_pb2.Datum()
        datum.channels, datum.height, datum.width = shape
        for value in row:
            datum.float_data.append(float(value))
        records.append((str(index).rjust(10, "0").encode(), datum.SerializeToString()))
    return records


@pytest.mark.parametrize(
    ("shape", "datum_shape"), [("6", (6, 1, 1)), ("2,3", (2, 3, 1)), ("1,2,3", (1, 2, 3)), ("", (1, 1, 1))]
)
def test_records_are_those_of_extract_features(shape: str, datum_shape: tuple[int, int, int], tmp_path: Path) -> None:
    write_in_parts(tmp_path / "fc7", {"fc7": VALUES}, fc7=shape)
    assert list(lmdb_records(tmp_path / "fc7").items()) == expected_records(datum_shape)
    assert [path.name for path in tmp_path.iterdir()] == ["fc7"]


def test_a_data_layer_reads_them(tmp_path: Path) -> None:
    write_in_parts(tmp_path / "fc7", {"fc7": VALUES}, fc7="1,2,3")
    with closing(LmdbSource(tmp_path / "fc7")) as source:
        images, labels = source.read(0, 1_200)
    np.testing.assert_array_equal(images, VALUES.reshape(-1, 1, 2, 3))
    assert not labels.any()


def test_several_blobs_have_a_database_each_and_all_or_none_is_there(tmp_path: Path) -> None:
    shapes = {"pool": "6", "mixed/out": "6"}
    write_in_parts(tmp_path / "both", {"pool": VALUES, "mixed/out": VALUES}, **shapes)
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == ["mixed_out", "pool"]
    assert lmdb_records(tmp_path / "both" / "mixed_out") == lmdb_records(tmp_path / "both" / "pool")
    with pytest.raises(KeyError), datum_outputs(database_plans(tmp_path / "none", schema_of(**shapes))) as outputs:
        outputs.add({"pool": VALUES})
    assert list((tmp_path / "none").iterdir()) == []


def test_nothing_but_a_database_is_replaced(tmp_path: Path) -> None:
    write_in_parts(tmp_path / "fc7", {"fc7": VALUES}, fc7="6")
    write_in_parts(tmp_path / "fc7", {"fc7": 2 * VALUES}, fc7="6")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    for existing in (tmp_path / "photos", tmp_path / "photos" / "cat.jpg"):
        with pytest.raises(ConfigError, match=r"output=.*: something else than a database is there"):
            database_plans(existing, schema_of(fc7="6"))
    with pytest.raises(ConfigError, match=r"two of them have the folder .*a_b; extract them one by one"):
        database_plans(tmp_path, schema_of(**{"a/b": "6", "a_b": "6"}))
    with pytest.raises(
        ConfigError, match='blobs: "fc7" has 4 axes behind the batch; format=lmdb: a Datum has at most 3'
    ):
        database_plans(tmp_path, schema_of(fc7="1,1,2,3"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "s3://bucket/fc7"}, "one process writes databases into a local folder, not into s3://bucket/fc7"),
        ({"output": "/x", "master": "local[2]"}, "without Spark; leave master out, or write parquet"),
    ],
)
def test_a_database_is_local_and_of_one_process(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(FeaturesConfig, {"bundle": "/b", "input": "/i", "blobs": "fc7", "format": "lmdb", **options})
