from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from caffe_import.data.hdf5_source import Hdf5Source
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.per_sample.properties import (
    check_properties,
    known_properties,
    property_values,
    sample_groups,
)
from deepspark_ops.shards.files.hdf5_shard import write_hdf5_columns
from deepspark_ops.shards.reader import Dataset, ShardInfo
from deepspark_ops.train.data.sample_cache import SampleCache

TASK = SimpleNamespace(task="regression")


@pytest.fixture
def table(tmp_path):
    """Samples of a table in two shards of three rows, the second without its middle row."""
    groups = np.array([b"north", b"south", b"north", b"west", b"gone", "\u00f6st".encode()])
    for shard in range(2):
        rows = slice(3 * shard, 3 * shard + 3)
        columns = {"data": np.zeros((3, 2), np.float32), "label": np.arange(3, dtype=np.float32)}
        columns |= {"group": groups[rows], "id": np.arange(10, 16)[rows]}
        write_hdf5_columns(tmp_path / f"test-{shard}.h5", columns)
    shards = [ShardInfo(str(tmp_path / "test-0.h5"), 3), ShardInfo(str(tmp_path / "test-1.h5"), 2, ((1, 2),))]
    dataset = Dataset(
        columns=("data", "label"),
        sample_shapes=((2,), ()),
        shards=shards,
        open_shard=lambda shard: Hdf5Source((tmp_path / f"test-{shard}.h5",), ("data", "label")),
        is_transformed=False,
    )
    dataset.manifest = SimpleNamespace(table=SimpleNamespace(group="region", id=None), shard_format="hdf5")
    cache = SampleCache(dataset)
    return SimpleNamespace(layers=[SimpleNamespace(samples=cache)], names=cache.keys, class_names=("a", "b"))


def test_columns_of_a_table_are_read_over_borders_and_left_out_rows(table):
    assert known_properties(table, [TASK]) == ("shard", "region", "group")
    for name in ("region", "group"):
        values = property_values(name, table, 1, 4, [TASK], [np.zeros(4)])
        assert values == ["south", "north", "west", "\u00f6st"]
    assert property_values("shard", table, 2, 2, [TASK], [np.zeros(2)]) == ["test-0.h5", "test-1.h5"]


def test_class_is_named_where_it_has_a_name(table):
    labels = np.array([1.0, 0.0, 7.0], np.float32)
    classes = SimpleNamespace(task="classification")
    assert property_values("class", table, 0, 3, [classes], [labels]) == ["b", "a", "7"]
    # Of a further result nobody knows whose the names are.
    assert known_properties(table, [TASK, classes])[0] == "class"
    assert property_values("class", table, 0, 3, [TASK, classes], [np.zeros(3), labels]) == ["1", "0", "7"]


def test_what_is_not_there_is_refused(table):
    check_properties(("group", "shard"), table, [TASK])
    with pytest.raises(ConfigError) as caught:
        check_properties(("group", "id"), table, [TASK])
    assert str(caught.value) == "slices=id: these samples have no such property; known: shard, region, group"


def test_numbers_are_texts_too(table, tmp_path):
    with h5py.File(tmp_path / "test-0.h5") as file:
        assert file["id"].dtype.kind in "iu"
    assert table.layers[0].samples.texts(2, 3, "id") == ["12", "13", "15"]


def test_groups_of_samples_are_told_over_borders_and_left_out_rows(table):
    north, south, also_north, west, east = sample_groups(table).tolist()
    assert north == also_north
    assert len({north, south, west, east}) == 4
    table.layers[0].samples.dataset.manifest.table.group = None
    table.layers[0].samples.dataset.manifest.group = None
    table.layers[0].samples.dataset.manifest.shards = [SimpleNamespace(records=None)] * 2
    assert sample_groups(table) is None
