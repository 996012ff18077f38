"""From a data layer's message to the source."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from caffe_import.data.hdf5_source import Hdf5Source, read_hdf5_list
from caffe_import.data.image_source import ImageSource, read_image_list
from caffe_import.data.leveldb_source import LeveldbSource
from caffe_import.data.lmdb_source import LmdbSource
from caffe_import.data.sample_source import SampleSource
from caffe_import.errors import DataSourceError, NetError
from caffe_import.file_access.allowed_roots import check_named_path
from caffe_import.net.layer_registry import Shape
from caffe_import.proto import caffe_pb2


def open_source(layer: caffe_pb2.LayerParameter, root: Path) -> SampleSource:
    """Return the source of a Data, ImageData or HDF5Data layer, not yet opened; paths are relative to ``root``.

    ``rand_skip`` and ``shuffle`` concern the order, which the caller chooses.

    Raises:
        NetError: The layer reads no files, or names none.
        DataSourceError: A list is missing, empty or broken.
        ForbiddenPathError: A path leads out of the allowed folders.
    """
    opener = _OPENERS.get(layer.type)
    if opener is None:
        source_types = ", ".join(_OPENERS)
        msg = f'layer "{layer.name}" ({layer.type}) has no source that can be opened; types that have: {source_types}'
        raise NetError(msg, layer=layer.name)
    return opener(layer, root)


def sample_shapes_of(layer: caffe_pb2.LayerParameter, root: Path) -> tuple[Shape, ...]:
    """Return one shape per top of the layer's first sample, without batch axis, before any crop.

    Raises:
        NetError: As ``open_source``.
        DataSourceError: As ``open_source``, or the first sample cannot be read.
    """
    source = open_source(layer, root)
    try:
        return source.sample_shapes()
    finally:
        source.close()


def _source_path(layer: caffe_pb2.LayerParameter, source: str, root: Path) -> Path:
    if not source:
        msg = f'layer "{layer.name}" ({layer.type}): source is missing'
        raise NetError(msg, layer=layer.name)
    path = root / source
    check_named_path(path, named_by=f'layer "{layer.name}" ({layer.type}): source')
    return path


def _open_data(layer: caffe_pb2.LayerParameter, root: Path) -> SampleSource:
    param = layer.data_param
    folder = _source_path(layer, param.source, root)
    transform = layer.transform_param
    color = True if transform.force_color else (False if transform.force_gray else None)
    source_class: type[LmdbSource | LeveldbSource] = LmdbSource
    if param.backend == caffe_pb2.DataParameter.LEVELDB:
        source_class = LeveldbSource
    _check_backend(layer, folder)
    for link in (path for path in folder.iterdir() if path.is_symlink()):
        check_named_path(link, named_by=f'layer "{layer.name}" ({layer.type}): source')
    return source_class(folder, color=color, with_labels=len(layer.top) > 1)


def _check_backend(layer: caffe_pb2.LayerParameter, folder: Path) -> None:
    """Refuse a database of the other kind: LEVELDB is the field's default and easily forgotten."""
    is_lmdb, is_leveldb = (folder / "data.mdb").is_file(), (folder / "CURRENT").is_file()
    backend = caffe_pb2.DataParameter.DB.Name(layer.data_param.backend)
    where = f'layer "{layer.name}" ({layer.type}): source "{layer.data_param.source}"'
    if not folder.is_dir():
        msg = f"{where}: no such database folder ({folder})"
        raise DataSourceError(msg)
    if not (is_leveldb if backend == "LEVELDB" else is_lmdb):
        other = "LMDB" if is_lmdb else "LEVELDB" if is_leveldb else ""
        article = "an" if other == "LMDB" else "a"
        remedy = _folder_content(folder)
        if other:
            # V0's layers have no field for the kind of database.
            of_v0 = (
                "" if layer.data_param.HasField("backend") else " in data_param (of a V0 net: after deepspark upgrade)"
            )
            remedy = f"it is {article} {other}; set backend: {other}{of_v0}"
        msg = f"{where} is no {backend}: {remedy}"
        raise DataSourceError(msg)


def _folder_content(folder: Path) -> str:
    """Return the content of a folder without a database, often the parent folder of databases for each split."""
    content = "found neither data.mdb nor CURRENT"
    inner = sorted(
        path.parent.relative_to(folder) for depth in ("*", "*/*") for path in folder.glob(f"{depth}/data.mdb")
    )
    if not inner:
        return f'{content}; images and other files are ingested first ("deepspark ingest", then --dataset)'
    more = f" and {len(inner) - 1} more" if len(inner) > 1 else ""
    remedy = "name one of them, or train with --dataset (an ingestion with --shards 1 writes a single database)"
    return f"{content}, but databases in folders below it: {inner[0]}{more}; {remedy}"


def _open_image_data(layer: caffe_pb2.LayerParameter, root: Path) -> SampleSource:
    param = layer.image_data_param
    path = _source_path(layer, param.source, root)
    images = read_image_list(path)
    if (param.new_height == 0) != (param.new_width == 0):
        msg = (
            f'layer "{layer.name}" ({layer.type}): new_height: {param.new_height} new_width: {param.new_width};'
            " give both or neither"
        )
        raise NetError(msg, layer=layer.name)
    return ImageSource(
        images,
        os.path.join(root, param.root_folder) if root != Path() else param.root_folder,
        is_color=param.is_color,
        new_height=param.new_height,
        new_width=param.new_width,
        listed_in=path,
    )


def _open_hdf5_data(layer: caffe_pb2.LayerParameter, root: Path) -> SampleSource:
    if layer.HasField("transform_param"):
        msg = f'layer "{layer.name}" ({layer.type}): transform_param is not allowed; HDF5 rows are used as stored'
        raise NetError(msg, layer=layer.name)
    path = _source_path(layer, layer.hdf5_data_param.source, root)
    return Hdf5Source(read_hdf5_list(path, root), tuple(layer.top), listed_in=path)


_OPENERS: dict[str, Callable[[caffe_pb2.LayerParameter, Path], SampleSource]] = {
    "Data": _open_data,
    "ImageData": _open_image_data,
    "HDF5Data": _open_hdf5_data,
}
