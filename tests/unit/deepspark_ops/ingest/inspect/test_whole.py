"""``data verify`` refuses a manifest of which any field was edited."""

import json
import shutil
from functools import cache

import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.inspect.whole import verify_dataset
from deepspark_ops.shards.manifest import DatasetManifest
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images
from tests.reference.table_files import a_table, ingest_parts, write_table

VERSION_WITHOUT_DIGEST = 5
COMPARED = (
    "encoded shard_format sample_shape n_samples n_classes label_histogram mean_values shards n_bytes split splits"
).split()
"""What can be told from the shards and the files beside them."""


def make_images(folder):
    source = write_images(folder / "raw", 30)
    names = folder / "names.txt"
    names.write_text("cat\ndog\neel\n")
    ingest(IngestConfig(source=source, output=folder / "set", class_names=names), folder / "work")


def make_table(folder):
    table = a_table(60)
    config = IngestConfig(source=write_table(folder / "t.parquet", table), output=folder / "set", feature_columns="f*")
    ingest_parts(config, [table], folder / "work")


MAKERS = {"images": make_images, "table": make_table}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    @cache
    def dataset(kind):
        folder = tmp_path_factory.mktemp(kind)
        MAKERS[kind](folder)
        return folder / "set"

    return dataset


def edited(value):
    """Return other values of the same type, which a reader of the manifest may accept."""
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [value + 1, value + 2]
        case str():
            return [f"{value}x", "lmdb", "hdf5", "train", "test", "0" * 64]
        case None:
            return ["x", {"file": "x", "sha256": "0" * 64}]
        case list():
            return [value[::-1], value[1:], [*value, *(value[:1] or [1.5])]]
        case dict():
            return [{**value, name: other} for name in value for other in edited(value[name])] or [{"duplicate": 1}]


def write_edited(folder, dataset, field, value, *, version=None):
    """Copy the dataset with another value in one field of its training set's manifest."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(dataset, folder)
    path = folder / "train" / "dataset.json"
    fields = json.loads(path.read_text())
    if version is not None:
        del fields["manifest_sha256"]
        fields["format_version"] = version
    path.write_text(json.dumps({**fields, field: value}))


def differing_edits(dataset, field):
    value = json.loads((dataset / "train" / "dataset.json").read_text())[field]
    return [other for other in edited(value) if other != value]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("field", [*DatasetManifest.model_fields, "manifest_sha256"])
def test_an_edit_of_any_field_is_refused(made, tmp_path, kind, field):
    edits = differing_edits(made(kind), field)
    assert edits
    for other in edits:
        write_edited(tmp_path / "set", made(kind), field, other)
        with pytest.raises(DataError):
            verify_dataset(tmp_path / "set", lambda _: None)


@pytest.mark.parametrize("kind", MAKERS)
def test_what_was_written_and_what_was_only_laid_out_anew_is_whole(made, tmp_path, kind):
    verify_dataset(made(kind), lambda _: None)
    fields = json.loads((made(kind) / "train" / "dataset.json").read_text())
    write_edited(tmp_path / "set", made(kind), "encoded", fields["encoded"])
    verify_dataset(tmp_path / "set", lambda _: None)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_digest_that_is_taken_out_is_an_edit(made, tmp_path, kind):
    shutil.copytree(made(kind), tmp_path / "set")
    path = tmp_path / "set" / "train" / "dataset.json"
    fields = json.loads(path.read_text())
    del fields["manifest_sha256"]
    path.write_text(json.dumps(fields))
    with pytest.raises(DataError, match=r"train/dataset\.json: it was edited since ingestion wrote it"):
        verify_dataset(tmp_path / "set", lambda _: None)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("field", COMPARED)
def test_a_manifest_without_a_digest_is_compared_with_the_shards(made, tmp_path, kind, field):
    dataset = made(kind)
    write_edited(tmp_path / "set", dataset, "version", 1, version=VERSION_WITHOUT_DIGEST)
    verify_dataset(tmp_path / "set", lambda _: None)
    for other in differing_edits(dataset, field):
        write_edited(tmp_path / "set", dataset, field, other, version=VERSION_WITHOUT_DIGEST)
        with pytest.raises(DataError):
            verify_dataset(tmp_path / "set", lambda _: None)
