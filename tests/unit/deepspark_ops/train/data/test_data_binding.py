"""Streams, orders and refusals of data layers that read the net's own sources."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pytest

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import NetSpec, build_net_spec
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.exchange.state.leases import DataLeases, Lease, sample_order
from deepspark_ops.train.data.batches import LeasedBatches, Ring
from deepspark_ops.train.data.data_binding import DataBinding, dataset_orders, separate_orders_note
from tests.paths import FIXTURES
from tests.reference.table_files import a_table, ingest_parts, write_table

CAFFE = FIXTURES / "caffe"


class WorkerLink:
    """The leases of one of several workers."""

    def __init__(self, leases: dict[str, DataLeases], worker: int) -> None:
        self.leases, self.worker = leases, worker

    def lease(self, dataset: str, *, read: Sequence[Lease] = ()) -> Lease:
        for lease in read:
            self.leases[dataset].complete(self.worker, lease.id)
        return self.leases[dataset].lease(self.worker)


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


def image_and_map_net(
    folder: Path, n_images: int, n_maps: int, batches: tuple[int, int] = (4, 4)
) -> tuple[NetSpec, DataBinding]:
    """Return a net with images and label maps of two lists of files; both hold the sample's number."""
    for top, counts in (("image", (n_images,)), ("map", (3, n_maps - 3))):
        firsts = np.cumsum([0, *counts])
        for number, count in enumerate(counts):
            values = np.arange(firsts[number], firsts[number] + count, dtype=np.float32)
            with h5py.File(folder / f"{top}{number}.h5", "w") as file:
                file[top] = np.repeat(values, 2).reshape(count, 2)
        (folder / f"{top}.txt").write_text("".join(f"{top}{number}.h5\n" for number in range(len(counts))))
    text = "".join(
        hdf5_layer(top, top, batch=batch).replace("data/solver_mlp", top)
        for top, batch in zip(("image", "map"), batches, strict=True)
    )
    binding = DataBinding(None, folder)
    shapes = partial(binding.sample_shapes, "TRAIN")
    return build_net_spec(parse_net(text), phase="TRAIN", sample_shapes=shapes), binding


def test_equally_many_samples_of_two_sources_stay_together_with_several_workers(tmp_path: Path) -> None:
    net, binding = image_and_map_net(tmp_path, 20, 20)
    layers = binding.fed_layers(net)
    orders = dataset_orders(net, layers, order="auto", n_workers=3, seed=7)
    assert (list(orders), orders["train"].order) == (["train"], "shuffled")
    leases = {name: DataLeases(name, order) for name, order in orders.items()}
    options = {"iter_size": 1, "seed": 7, "first_step": 0, "shared": Ring.of(layers, (), 1)}
    workers = [LeasedBatches(WorkerLink(leases, w), layers, (), worker=w, **options) for w in range(3)]
    images: list[int] = []
    for step in range(12):
        feeds, _ = workers[step % 3].take(1)
        np.testing.assert_array_equal(feeds["image"], feeds["map"])
        images += feeds["image"][0, :, 0].astype(int).tolist()
    assert sorted(images[:20]) != images[:20]
    binding.close()
    assert separate_orders_note(layers, n_workers=3) == ""


@pytest.mark.parametrize(("counts", "batches"), [((36, 12), (6, 2)), ((12, 36), (2, 6))])
def test_equally_many_batches_stay_together_with_several_workers(
    tmp_path: Path, counts: tuple[int, int], batches: tuple[int, int]
) -> None:
    net, binding = image_and_map_net(tmp_path, *counts, batches)
    layers = binding.fed_layers(net)
    assert separate_orders_note(layers, n_workers=3) == ""
    orders = dataset_orders(net, layers, order="auto", n_workers=3, seed=7)
    assert {name: (order.order, order.n_samples) for name, order in orders.items()} == {"train": ("shuffled", 12)}
    leases = {name: DataLeases(name, order) for name, order in orders.items()}
    options = {"iter_size": 1, "seed": 7, "first_step": 0, "shared": Ring.of(layers, (), 1)}
    workers = [LeasedBatches(WorkerLink(leases, w), layers, (), worker=w, **options) for w in range(3)]
    for step in range(9):
        feeds, _ = workers[step % 3].take(1)
        few, three_parts = sorted((feeds["image"][0, :, 0], feeds["map"][0, :, 0]), key=len)
        assert three_parts.tolist() == [3 * number + part for number in few for part in range(3)]
    binding.close()


def test_layers_whose_batches_do_not_divide_are_separate(tmp_path: Path) -> None:
    net, binding = image_and_map_net(tmp_path, 18, 12, (6, 4))
    layers = binding.fed_layers(net)
    assert [layer.stream for layer in layers] == ["train", "train_1"]
    assert separate_orders_note(layers, n_workers=2)


def test_layers_that_shuffle_have_orders_of_their_own_as_in_caffe(tmp_path: Path) -> None:
    text = hdf5_layer("a", "data", more="shuffle: true") + hdf5_layer("b", "data2", more="shuffle: true")
    net, binding = bound(text)
    layers = binding.fed_layers(net)
    assert [layer.stream for layer in layers] == ["train", "train_1"]
    orders = dataset_orders(net, layers, order="auto", n_workers=1, seed=3)
    assert [order.order for order in orders.values()] == ["shuffled", "shuffled"]
    first, second = (
        np.concatenate([sample_order(leases.lease(0)) for _ in range(5)])
        for leases in (DataLeases(name, order) for name, order in orders.items())
    )
    assert first.tolist() != second.tolist()
    assert separate_orders_note(layers, n_workers=2) == ""


def test_layers_that_cannot_stay_together_are_a_note(tmp_path: Path) -> None:
    net, binding = image_and_map_net(tmp_path, 20, 12)
    layers = binding.fed_layers(net)
    assert separate_orders_note(layers, n_workers=1) == ""
    assert separate_orders_note(layers, n_workers=2).startswith(
        '2 workers read the layers "image" (image: 20 samples, 4 a batch) and "map" (map: 12 samples, 4 a batch) in'
        " separate orders; if their samples belong together, give n_workers=1, or "
    )


def test_layers_of_one_name_keep_their_own_wish_to_shuffle() -> None:
    text = hdf5_layer("a", "data", batch=4) + hdf5_layer("a", "data2", more="shuffle: true")
    assert [order.order for order in orders_of(text).values()] == ["file", "shuffled"]


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
    text = hdf5_layer("a", "data", batch=2) + hdf5_layer("c", "label", batch=2)
    lstm = """
    layer { name: "r" type: "Reshape" bottom: "data" top: "x" reshape_param { shape { dim: 2 dim: 1 dim: 6 } } }
    layer { name: "q" type: "Reshape" bottom: "label" top: "cont" reshape_param { shape { dim: 2 dim: 1 } } }
    layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "h" recurrent_param { num_output: 2 } }
    """
    order = orders_of(text + lstm, n_workers=2)["train"]
    assert (order.order, order.piece_samples) == ("file", 4)  # whole batches of the 3 samples of a share


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
    columns_and_tops = {
        layer.name: (layer.columns, list(layer.tops.values())) for layer in weighted_table.fed_layers(net)
    }
    assert columns_and_tops == {"a": ((2, 0), [(8,), (8, 3)]), "b": ((0, 1), [(8, 3), (8,)])}


def test_a_transform_of_features_is_refused(weighted_table) -> None:
    text = hdf5_layer("a", "data", "label").replace("HDF5Data", "Data").replace("hdf5_data_param", "data_param")
    text = text.replace("data_param {", "transform_param { scale: 2 } data_param {", 1)
    shapes = partial(weighted_table.sample_shapes, "TRAIN")
    net = build_net_spec(parse_net(text), phase="TRAIN", sample_shapes=shapes)
    with pytest.raises(NetError, match=r'"a" .Data.: its transform_param is for images, and the dataset.s samples are'):
        weighted_table.fed_layers(net)
