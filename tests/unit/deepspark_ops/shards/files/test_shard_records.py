"""The file beside a shard that describes its samples: a written file is read, a file of another version is refused."""

import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from numpy.lib import format as npy

from deepspark_ops.errors import DataError
from deepspark_ops.shards.files.shard_records import ShardRecords, read_records, write_records

NAMES = ("a/1.png", "b/\udce9.png")
RECORDS = ShardRecords(
    names=NAMES,
    labels=np.array([3, 0]),
    stamps=np.array([2**63 + 5, 0], np.uint64),
    digests=np.array([7, 2**64 - 1], np.uint64),
    repeats=np.array([0, 1], np.int32),
    sums=np.arange(12, dtype=np.int64).reshape(3, 2, 2) * 100,
    looks=np.array([[0, 480, 640, 101.5, 33.25]]),
    findings=(("alpha", 1, "alpha is dropped"),),
    counts={"alpha": 1, "cmyk": 4},
    pixel_range=(3.0, 250.5),
)
WITHOUT_RANGE = replace(RECORDS, pixel_range=None)


def archive(version: int, sums: np.ndarray) -> bytes:
    """Return the file of ``WITHOUT_RANGE`` as the format is described, made by zipfile and NumPy's own format alone."""
    findings_json = json.dumps({"findings": [["alpha", 1, "alpha is dropped"]], "counts": {"alpha": 1, "cmyk": 4}})
    arrays = {
        "format_version": np.array(version),
        "names": np.frombuffer(b"a/1.pngb/\xe9.png", np.uint8),
        "name_bytes": np.array([7, 7]),
        "labels": np.array([3, 0]),
        "stamps": np.array([2**63 + 5, 0], np.uint64),
        "digests": np.array([7, 2**64 - 1], np.uint64),
        "repeats": np.array([0, 1], np.int32),
        "sums": sums,
        "looks": np.array([[0, 480, 640, 101.5, 33.25]]),
        "told": np.frombuffer(findings_json.encode(), np.uint8),
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in arrays.items():
            member = io.BytesIO()
            npy.write_array(member, values)
            archive.writestr(f"{name}.npy", member.getvalue())
    return file.getvalue()


def check_equal(read: ShardRecords, records: ShardRecords) -> None:
    for name, expected in vars(records).items():
        value = getattr(read, name)
        if isinstance(expected, np.ndarray):
            assert value.dtype == expected.dtype, name
            np.testing.assert_array_equal(value, expected, name)
        else:
            assert value == expected, name


def test_a_file_is_read_as_the_format_is_described(tmp_path):
    path = tmp_path / "x.records.npz"
    path.write_bytes(archive(3, RECORDS.sums.astype(np.uint16)))
    check_equal(read_records(path), WITHOUT_RANGE)


def test_what_is_written_comes_back(tmp_path):
    path = tmp_path / "x.records.npz"
    write_records(path, RECORDS)
    check_equal(read_records(path), RECORDS)
    with np.load(path) as held:
        assert (int(held["format_version"]), held["sums"].dtype) == (3, np.uint16)
        assert (held["pixel_range"].dtype, held["pixel_range"].tolist()) == (np.float64, [3.0, 250.5])
    write_records(path, WITHOUT_RANGE)
    check_equal(read_records(path), WITHOUT_RANGE)


@pytest.mark.parametrize("version", [2, 4])
def test_another_version_is_refused(tmp_path, version):
    path = tmp_path / "x.records.npz"
    path.write_bytes(archive(version, RECORDS.sums))
    with pytest.raises(DataError, match=rf"format_version is {version}, this program reads 3; run .deepspark ingest"):
        read_records(path)
