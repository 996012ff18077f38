"""Streams, orders and refusals of data layers that read the net's own sources."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import NetSpec, build_net_spec
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.train.data.data_binding import DataBinding, dataset_orders
from tests.paths import FIXTURES
from tests.reference.table_files import a_table, ingest_parts, write_table

CAFFE = FIXTURES / "caffe"
LAYER = """
layer {{ name: "{name}" type: "HDF5Data" {tops}
  hdf5_data_param {{ source: "data/solver_mlp.txt" batch_size: {batch} {more} }} }}
"""


def hdf5_layer(name: str, *tops: str, batch: int = 8, more: str = "") -> str:
    return LAYER.format(name=name, tops=" ".join(f'top: "{top}"' for top in tops), batch=batch, more=more)


def bound(text: str) -> tuple[NetSpec, DataBinding]:
    binding = DataBinding(None, CAFFE)
    net = build_net_spec(parse_net(text), phase="TRAIN", sample_shapes=partial(binding.sample_shapes, "TRAIN"))
    return net, binding


def orders_of(text: str, **options: object) -> dict[str, object]:
    net, binding = bound(text)
    settings = {"order": "auto", "n_workers": 1, "seed": 3, **options}
    return dataset_orders(net, binding.fed_layers(net), **settings)


def test_equal_sources_share_a_stream_whatever_they_take_from_a_row() -> None:
    net, binding = bound(hdf5_layer("a", "data", "label") + hdf5_layer("b", "data2"))
    assert [(layer.stream, list(layer.tops)) for layer in binding.fed_layers(net)] == [
        ("train", ["data", "label"]),
        ("train", ["data2"]),
    ]


def test_another_batch_size_is_a_stream_of_its_own() -> None:
    net, binding = bound(hdf5_layer("a", "data") + hdf5_layer("b", "data2", batch=4))
    assert [layer.stream for layer in binding.fed_layers(net)] == ["train", "train_1"]


def test_one_worker_reads_in_file_order_unless_the_layer_shuffles() -> None:
    text = hdf5_layer("a", "data")
    assert orders_of(text)["train"].order == "file"
    assert orders_of(hdf5_layer("a", "data", more="shuffle: true"))["train"].order == "shuffled"
    assert orders_of(hdf5_layer("a", "data", more="shuffle: true"), order="file")["train"].order == "file"
    assert orders_of(text, order="shuffled")["train"].order == "shuffled"


def test_several_workers_shuffle_pieces_of_at_least_a_batch() -> None:
    order = orders_of(hdf5_layer("a", "data"), n_workers=2)["train"]
    assert (order.order, order.shard_samples, order.seed, order.piece_samples) == ("shuffled", (40,), 3, 8)


def test_sequences_stay_in_order_with_several_workers() -> None:
    text = hdf5_layer("a", "data", batch=4) + hdf5_layer("c", "label", batch=4)
    lstm = """
    layer { name: "r" type: "Reshape" bottom: "data" top: "x" reshape_param { shape { dim: 4 dim: 1 dim: 6 } } }
    layer { name: "q" type: "Reshape" bottom: "label" top: "cont" reshape_param { shape { dim: 4 dim: 1 } } }
    layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "h" recurrent_param { num_output: 2 } }
    """
    assert orders_of(text + lstm, n_workers=2)["train"].order == "file"


def test_layer_that_reads_no_files_is_refused_without_a_dataset() -> None:
    memory = "memory_data_param { batch_size: 2 channels: 1 height: 2 width: 2 }"
    net, binding = bound(f'layer {{ name: "m" type: "MemoryData" top: "data" top: "label" {memory} }}')
    with pytest.raises(NetError) as raised:
        binding.fed_layers(net)
    assert str(raised.value) == (
        'layer "m" (MemoryData): reads no files; give an ingested dataset (option dataset) or a layer of type Data'
    )


def test_net_without_fed_layers_needs_no_data() -> None:
    dummy = 'dummy_data_param { shape { dim: 2 dim: 3 } data_filler { type: "constant" value: 1 } }'
    net, binding = bound(f'layer {{ name: "d" type: "DummyData" top: "data" {dummy} }}')
    assert binding.fed_layers(net) == ()


@pytest.fixture
def weighted_table(tmp_path):
    table = a_table(60).append_column("w", pa.array(np.arange(60.0)))
    options = {"label_column": "price", "weight_column": "w", "feature_columns": "f*", "test_fraction": 0}
    config = IngestConfig(source=write_table(tmp_path / "t.parquet", table), output=tmp_path / "out", **options)
    ingest_parts(config, [table], tmp_path / "work")
    return DataBinding(config.output, tmp_path)


def test_columns_of_a_table_are_found_by_the_names_of_tops(weighted_table) -> None:
    text = hdf5_layer("a", "weight", "data") + hdf5_layer("b", "x", "y")
    shapes = partial(weighted_table.sample_shapes, "TRAIN")
    net = build_net_spec(parse_net(text), phase="TRAIN", sample_shapes=shapes)
    found = {layer.name: (layer.columns, list(layer.tops.values())) for layer in weighted_table.fed_layers(net)}
    assert found == {"a": ((2, 0), [(8,), (8, 3)]), "b": ((0, 1), [(8, 3), (8,)])}


def test_a_transform_of_features_is_refused(weighted_table) -> None:
    text = hdf5_layer("a", "data", "label").replace("HDF5Data", "Data").replace("hdf5_data_param", "data_param")
    text = text.replace("data_param {", "transform_param { scale: 2 } data_param {", 1)
    shapes = partial(weighted_table.sample_shapes, "TRAIN")
    net = build_net_spec(parse_net(text), phase="TRAIN", sample_shapes=shapes)
    with pytest.raises(NetError, match=r'"a" .Data.: its transform_param is for images, and the dataset.s samples are'):
        weighted_table.fed_layers(net)
