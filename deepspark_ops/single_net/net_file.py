"""A runnable net from a file, bound to its data."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from caffe_import.errors import CaffeImportError
from caffe_import.files.prototxt import read_net
from caffe_import.net.batch_size import set_batch_size
from caffe_import.net.layer_registry import Phase, Shape
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.net.phases import filter_layers
from caffe_import.proto import caffe_pb2
from deepspark_ops.config.shared_options.named_files import NamedFiles
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.processes.named_files import limit_named_files
from deepspark_ops.stores.store_path import DataPath
from deepspark_ops.train.data.data_binding import FED_BY_COLUMN, READS_FILES, DataBinding, image_and_label
from deepspark_ops.train.data.sources import SourceResolver


@dataclass(frozen=True)
class OpenNet:
    """A net with its data; ``binding`` closes with the block of ``opened_net``."""

    net: NetSpec
    name: str
    batch_size: int
    binding: DataBinding


@contextmanager
def opened_net(
    path: Path,
    *,
    phase: Phase,
    named_files: NamedFiles,
    without_data: str,
    batch_size: int | None = None,
    sample_shape: Shape | None = None,
    dataset: DataPath | None = None,
) -> Iterator[OpenNet]:
    """Build a net from its file; its relative paths are looked for as ``relative_paths`` says.

    Args:
        path: Prototxt of the net.
        phase: Phase of the net.
        named_files: Limits on the files and modules in the net.
        without_data: Remedy for missing data, for the message.
        batch_size: Samples of a pass; None for the net's batch size.
        sample_shape: Sample shape of the first top of each data layer, for missing data.
        dataset: Ingested dataset for the data layers, instead of their sources.

    Raises:
        CaffeImportError: The net cannot be read or built.
        ConfigError: The data of the data layers are unknown.
    """
    with tempfile.TemporaryDirectory(prefix="deepspark-net-") as lists:
        limit_named_files(named_files, (path.parent, dataset), scratch=Path(lists))
        message = filter_layers(read_net(path), phase=phase)
        if dataset is None and sample_shape is None:
            resolver = SourceResolver(None, path, Path(lists))
            message = resolver.resolve(message)
            resolver.write_lists()
        if batch_size is not None:
            for layer in message.layer:
                if layer.type in (*READS_FILES, *FED_BY_COLUMN):
                    set_batch_size(layer, batch_size)
        binding = DataBinding(dataset, Path.cwd())

        def sample_shapes(layer: caffe_pb2.LayerParameter) -> tuple[Shape, ...]:
            if sample_shape is not None:
                return image_and_label(layer, sample_shape)
            try:
                return binding.sample_shapes(phase, layer)
            except (CaffeImportError, DataError) as error:
                if dataset is not None:
                    raise
                msg = f"{error}; {without_data}"
                raise ConfigError(msg) from error

        try:
            net = build_net_spec(message, phase=phase, sample_shapes=sample_shapes)
            yield OpenNet(net, net.name or path.stem, net.batch_size or 1, binding)
        finally:
            binding.close()
