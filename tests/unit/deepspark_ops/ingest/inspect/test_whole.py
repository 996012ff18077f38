"""``data verify`` refuses a manifest with an edited field."""

import json
import shutil
from functools import cache

import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.inspect.whole import verify_dataset
from deepspark_ops.shards.manifest import DatasetManifest, manifest_path
from tests.reference.dataset_files import put_manifest_text
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images
from tests.reference.table_files import a_table, ingest_parts, write_table

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
def dataset_of_kind(tmp_path_factory):
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


def write_edited(folder, dataset, field, value, *, with_digest=False):
    """Write a copy of the dataset with another value in a field of its training set's manifest."""
    if not folder.exists():
        shutil.copytree(dataset, folder)
    path = manifest_path(folder, "train")
    text = json.dumps({**json.loads(manifest_path(dataset, "train").read_text()), field: value})
    if with_digest:
        put_manifest_text(folder, "train", text)
    else:
        path.write_text(text)


def differing_edits(dataset, field):
    value = json.loads(manifest_path(dataset, "train").read_text())[field]
    return [other for other in edited(value) if other != value]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("field", DatasetManifest.model_fields)
def test_an_edit_of_any_field_is_refused(dataset_of_kind, tmp_path, kind, field):
    edits = differing_edits(dataset_of_kind(kind), field)
    assert edits
    for other in edits:
        write_edited(tmp_path / "set", dataset_of_kind(kind), field, other)
        with pytest.raises(DataError):
            verify_dataset(tmp_path / "set", lambda _: None)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("field", COMPARED)
def test_an_edit_with_its_digest_is_compared_with_the_shards(dataset_of_kind, tmp_path, kind, field):
    dataset = dataset_of_kind(kind)
    verify_dataset(dataset, lambda _: None)
    for other in differing_edits(dataset, field):
        write_edited(tmp_path / "set", dataset, field, other, with_digest=True)
        with pytest.raises(DataError):
            verify_dataset(tmp_path / "set", lambda _: None)
