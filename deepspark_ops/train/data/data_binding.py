"""The samples of each data layer: of an ingested dataset if the run has a dataset, else of the net's own sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, prod
from pathlib import Path
from typing import Literal

import numpy as np

from caffe_import.data.transform import mean_fault, transform_options
from caffe_import.data.window_batches import WindowBatches, open_windows
from caffe_import.errors import NetError
from caffe_import.net.label_users import LabelUser, label_users
from caffe_import.net.layer_registry import Phase, Shape
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import DataError
from deepspark_ops.exchange.state.leases import MOST_MIXED_SHARDS, DatasetOrder
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.changed_shards import Stamp
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.shards.reader import Dataset, open_dataset, open_layer_dataset
from deepspark_ops.stores.store_path import DataPath
from deepspark_ops.train.data.data_layers import DrawnLayer, FedLayer, leased_layer
from deepspark_ops.train.data.label_check import LabelColumn
from deepspark_ops.train.data.sample_cache import CACHE_BYTES, SampleCache

READS_FILES = ("Data", "ImageData", "HDF5Data")
"""Layer types with their own source."""
READS_PICTURES = ("Data", "ImageData")
"""Layer types whose samples may have several sizes."""
FED_BY_COLUMN = ("Input", "MemoryData")
"""Layer types that only a dataset can feed: the tops take the dataset's columns in order."""
FILLS_ITSELF = ("DummyData",)
DRAWS_ITSELF = ("WindowData",)
"""Layer types that draw from their own files at random; a dataset does not replace these."""
_SEQUENCE_TYPES = ("LSTM", "RNN")
_PIECES_PER_WORKER = 8
_PIECE_SAMPLES = 1_024
_PIECE_BYTES = 8 * 2**20


def image_and_label(layer: caffe_pb2.LayerParameter, shape: Shape) -> tuple[Shape, ...]:
    """Return a sample's shapes for absent data: the first top has ``shape``, each other top is a number."""
    return (shape, *[()] * (len(layer.top) - 1))


@dataclass
class DataBinding:
    """Opens the data of a run's data layers; layers with equal sources share the same samples.

    Attributes:
        dataset: Ingested dataset in place of the layers' own sources; None for the layers' sources.
        root: Folder that the layers' relative paths start from.
        split: Part of the dataset for both phases; None: the training set in TRAIN, the test set in TEST.
        cache_bytes: Limit of kept samples per source; 0 if each sample is read once.
        stamps: Split -> the stamps of the shards when the run began, for a check; empty for no check.
        single: Names of data layers whose batch is of one sample, where the net is built for larger batches.
    """

    dataset: DataPath | None
    root: Path
    split: SplitName | None = None
    cache_bytes: int = CACHE_BYTES
    stamps: Mapping[str, Mapping[str, Stamp]] = field(default_factory=dict)
    single: frozenset[str] = frozenset()
    _caches: dict[tuple[object, ...], SampleCache] = field(default_factory=dict)
    _windows: dict[tuple[Phase, str], WindowBatches] = field(default_factory=dict)

    def sample_shapes(self, phase: Phase, layer: caffe_pb2.LayerParameter) -> tuple[Shape, ...]:
        """Return a sample's shape per top of a data layer, before any crop; a ``SampleShapes`` once phase is bound.

        Raises:
            DataError: The data are missing or damaged.
            NetError: The layer reads no files and the run has no dataset.
        """
        if layer.type in DRAWS_ITSELF:
            return self._open_windows(layer, phase).sample_shapes()
        dataset = self._open(layer, phase).dataset
        columns = _named_columns(layer, dataset)
        return dataset.sample_shapes if columns is None else tuple(dataset.sample_shapes[column] for column in columns)

    def fed_layers(self, net: NetSpec) -> tuple[FedLayer, ...]:
        """Return the data layers of a net that need feeds, in order.

        Layers with equally many batches share a stream, whatever their sources, with any number of workers. So images
        stay with their label maps, and 24 frames with the marks of 8 steps.

        Raises:
            DataError: The data are missing or damaged.
            NetError: The data do not fit a layer.
        """
        streams: dict[tuple[object, ...], str] = {}
        users = label_users(net)
        fed = []
        n_columns = 0
        data_layers = [
            layer
            for layer in net.layers
            if layer.definition.is_data and layer.type not in (*FILLS_ITSELF, *DRAWS_ITSELF)
        ]
        batches = [self._batches_of(layer, net.phase) for layer in data_layers]
        smallest_batch: dict[Fraction, int] = {}
        for layer, (n_batches, batch_size) in zip(data_layers, batches, strict=True):
            if not _asks_for_shuffle(layer.message):
                smallest_batch[n_batches] = min(batch_size, smallest_batch.get(n_batches, batch_size))
        for number, (layer, (n_batches, batch_size)) in enumerate(zip(data_layers, batches, strict=True)):
            samples = self._open(layer.message, net.phase)
            first = n_columns if layer.type in FED_BY_COLUMN else 0
            n_columns += len(layer.tops) if layer.type in FED_BY_COLUMN else 0
            # In Caffe each layer with shuffle draws another order; layers without shuffle read their sources in step.
            shuffles = _asks_for_shuffle(layer.message)
            is_separate = shuffles or batch_size % smallest_batch[n_batches] > 0
            key = (n_batches, number if is_separate else None)
            stream = streams.setdefault(key, f"train_{len(streams)}" if streams else "train")
            fed_layer = self._fed_layer(layer, samples, first, stream, net.phase)
            fed.append(replace(fed_layer, labels=_label_columns(fed_layer, users), shuffles=shuffles))
        return tuple(fed)

    def drawn_layers(self, net: NetSpec) -> tuple[DrawnLayer, ...]:
        """Return the data layers of a net with random draws, in order.

        Raises:
            DataError: A window's label is none of the classes of the reading layer.
            DataSourceError: The layers' files are missing or damaged.
            NetError: Options that do not go together.
        """
        users = label_users(net)
        drawn = []
        for layer in net.layers:
            if layer.type not in DRAWS_ITSELF:
                continue
            windows = self._open_windows(layer.message, net.phase)
            for user in users.get(layer.tops[1], ()):
                _check_windows(windows, LabelColumn(1, user))
            tops = dict(zip(layer.tops, layer.definition.top_shapes, strict=True))
            drawn.append(DrawnLayer(layer.name, tops, windows))
        return tuple(drawn)

    def close(self) -> None:
        """Close every file."""
        for cache in self._caches.values():
            cache.close()
        self._caches.clear()
        self._windows.clear()

    def _batches_of(self, layer: LayerSpec, phase: Phase) -> tuple[Fraction, int]:
        """Return the number of batches in the layer's source, and the batch size."""
        batch_size = layer.definition.top_shapes[0][0]
        return Fraction(self._open(layer.message, phase).n_samples, batch_size), batch_size

    def _fed_layer(self, layer: LayerSpec, samples: SampleCache, first: int, stream: str, phase: Phase) -> FedLayer:
        dataset = samples.dataset
        columns = _named_columns(layer.message, dataset) or tuple(range(first, first + len(layer.tops)))
        if max(columns) >= len(dataset.columns):
            finding = f"needs columns up to {max(columns)}, its data have {len(dataset.columns)}: {dataset.columns}"
            raise _refusal(layer, finding)
        applies = dataset.is_transformed and layer.type != "MemoryData" and columns[0] == 0
        parameters = layer.message.transform_param
        transform = transform_options(parameters, root=self.root, layer=layer.name) if applies else None
        if dataset.manifest is not None and not applies and columns[0] == 0 and parameters.ByteSize():
            finding = "its transform_param is for images, and the dataset's samples are rows of features; leave it out"
            raise _refusal(layer, finding)
        if transform is not None and (fault := mean_fault(transform, dataset.sample_shapes[0])):
            raise _refusal(layer, fault)
        tops = dict(zip(layer.tops, layer.definition.top_shapes, strict=True))
        for (top, shape), column in zip(tops.items(), columns, strict=True):
            sample_shape = dataset.sample_shapes[column]
            if column == 0 and transform is not None and transform.crop_size:
                continue  # the net's shapes were derived from these samples and this crop
            if prod(sample_shape) != prod(shape[1:]):
                name = dataset.columns[column]
                finding = f'top "{top}" has shape {shape}, samples of column "{name}" have {sample_shape}'
                raise _refusal(layer, finding)
        is_single = layer.name in self.single or layer.definition.top_shapes[0][0] == 1
        takes_sizes = is_single and layer.type in READS_PICTURES and not (transform and transform.crop_size)
        return FedLayer(layer.name, tops, columns, samples, transform, stream, phase, takes_sizes=takes_sizes)

    def _open_windows(self, layer: caffe_pb2.LayerParameter, phase: Phase) -> WindowBatches:
        key = (phase, layer.name)
        if key not in self._windows:
            self._windows[key] = open_windows(layer, self.root)
        return self._windows[key]

    def _open(self, layer: caffe_pb2.LayerParameter, phase: Phase) -> SampleCache:
        key = self._key(layer, phase)
        if key not in self._caches:
            self._caches[key] = SampleCache(self._open_dataset(layer, phase), self.cache_bytes)
        return self._caches[key]

    def _open_dataset(self, layer: caffe_pb2.LayerParameter, phase: Phase) -> Dataset:
        if self.dataset is not None:
            split = self.split or ("train" if phase == "TRAIN" else "test")
            folder = DatasetPaths(self.dataset).split(split)
            return open_dataset(folder, color=_color(layer), stamps=self.stamps.get(split))
        if layer.type not in READS_FILES:
            finding = "reads no files; give an ingested dataset (option dataset) or a layer of type Data"
            raise _refusal(layer, finding)
        return open_layer_dataset(layer, self.root)

    def _key(self, layer: caffe_pb2.LayerParameter, phase: Phase) -> tuple[object, ...]:
        """Return a key of the layer's samples: equal keys mean equal samples; the last part is the decoding."""
        if self.dataset is not None:
            return (phase, self.split, _color(layer))
        source: bytes = b""
        if layer.type in READS_FILES:
            parameters = {
                "Data": layer.data_param,
                "ImageData": layer.image_data_param,
                "HDF5Data": layer.hdf5_data_param,
            }[layer.type]
            without_batch = type(parameters)()
            without_batch.CopyFrom(parameters)
            without_batch.ClearField("batch_size")
            source = without_batch.SerializeToString(deterministic=True)
        tops = tuple(layer.top) if layer.type == "HDF5Data" else ()  # HDF5 rows are found by the tops' names
        return (layer.type, source, (_color(layer), len(layer.top), tops))


def _named_columns(layer: caffe_pb2.LayerParameter, dataset: Dataset) -> tuple[int, ...] | None:
    """Return the columns with the names of an HDF5Data layer's tops, as in Caffe; None if a column has another name."""
    if layer.type != "HDF5Data" or dataset.manifest is None or not set(layer.top) <= set(dataset.columns):
        return None
    return tuple(dataset.columns.index(top) for top in layer.top)


def _label_columns(fed: FedLayer, users: Mapping[str, Sequence[LabelUser]]) -> tuple[LabelColumn, ...]:
    """Return the columns whose stored values the net reads as classes: no transform changes the values."""
    is_changed = fed.transform is not None and fed.transform.changes_values
    return tuple(
        LabelColumn(column, user)
        for top, column in zip(fed.tops, fed.columns, strict=True)
        for user in users.get(top, ())
        if column > 0 or not is_changed
    )


def _check_windows(windows: WindowBatches, labels: LabelColumn) -> None:
    foreground = windows.windows.foreground
    outside = labels.first_outside(np.array([window.label for window in foreground])) if foreground else None
    if outside is not None:
        index, label = outside
        image = windows.windows.images[foreground[index].image]
        raise DataError(labels.finding(label, f'foreground window {index} (in image "{image}")'))


def _refusal(layer: caffe_pb2.LayerParameter | LayerSpec, finding: str) -> NetError:
    msg = f'layer "{layer.name}" ({layer.type}): {finding}'
    return NetError(msg, layer=layer.name)


def _color(layer: caffe_pb2.LayerParameter) -> bool | None:
    transform = layer.transform_param
    if transform.force_color:
        return True
    if layer.type == "ImageData":
        return layer.image_data_param.is_color
    return False if transform.force_gray else None


def dataset_orders(
    net: NetSpec,
    layers: Sequence[FedLayer],
    *,
    order: Literal["auto", "file", "shuffled"],
    n_workers: int,
    seed: int,
    staged_bytes: int | None = None,
) -> dict[str, DatasetOrder]:
    """Return stream -> the order in which the exchange leases the samples.

    ``auto`` is file order for a single worker, as in Caffe, unless the layer asks for ``shuffle``. Several workers take
    pieces in random order, but sequence data in file order.

    Args:
        net: The training net.
        layers: The net's fed layers.
        order: As in TrainConfig.
        n_workers: Each worker has several pieces per epoch.
        seed: Decides shuffled orders.
        staged_bytes: Room on each host for copies of shards of a store or of the driver, if not all shards fit.
    """
    orders: dict[str, DatasetOrder] = {}
    is_sequence = any(layer.type in _SEQUENCE_TYPES for layer in net.layers)
    for layer in layers:
        if layer.stream in orders:
            continue
        group = [other for other in layers if other.stream == layer.stream]
        leased = leased_layer(group)
        chosen: Literal["file", "shuffled"] = order if order != "auto" else "file"
        if order == "auto" and (layer.shuffles or (n_workers > 1 and not is_sequence)):
            chosen = "shuffled"
        dataset = leased.samples.dataset
        sample_bytes = max(1, sum(prod(shape) for other in group for shape in other.samples.dataset.sample_shapes))
        piece = min(_PIECE_SAMPLES, ceil(_PIECE_BYTES / sample_bytes))
        if n_workers > 1 or chosen == "shuffled":
            shared = ceil(dataset.n_samples / (_PIECES_PER_WORKER * n_workers))
            # Not below a batch: every lease is a question to the server.
            piece = min(piece, max(shared, leased.batch_size))
        if is_sequence:
            # The samples of a batch are steps of streams: a batch that begins inside a piece would move the streams.
            piece = ceil(piece / leased.batch_size) * leased.batch_size
        counts = tuple(shard.n_samples for shard in dataset.shards)
        mixed = 0
        if staged_bytes is not None and dataset.manifest is not None and chosen == "shuffled":
            largest = max(shard.n_bytes for shard in dataset.manifest.shards)
            # Half of the room: the next shards are fetched while these are read, and a worker may be behind.
            mixed = min(MOST_MIXED_SHARDS, max(1, (staged_bytes // largest - 1) // 2))
        orders[layer.stream] = DatasetOrder(counts, chosen, seed + len(orders), max(1, piece), mixed)
    return orders


def separate_orders_note(layers: Sequence[FedLayer], *, n_workers: int) -> str:
    """Return a note on layers that several workers read in separate orders; empty if there are none.

    In Caffe such layers advance side by side, so their samples may belong together.
    """
    readers = {layer.stream: layer for layer in layers if not layer.shuffles}
    if n_workers == 1 or len(readers) < 2:
        return ""
    counts = " and ".join(
        f'"{layer.name}" ({", ".join(layer.tops)}: {layer.samples.n_samples} samples, {layer.batch_size} a batch)'
        for layer in readers.values()
    )
    return (
        f"{n_workers} workers read the layers {counts} in separate orders; if their samples belong together, give"
        " n_workers=1, or equally many batches whose sizes are multiples of the smallest"
    )


def _asks_for_shuffle(layer: caffe_pb2.LayerParameter) -> bool:
    return layer.image_data_param.shuffle or layer.hdf5_data_param.shuffle
