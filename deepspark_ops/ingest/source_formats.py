"""Which format a source has, and the one place that knows all formats."""

from __future__ import annotations

from pathlib import Path

from deepspark_ops.config.ingest import IngestConfig, SourceFormat
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.archive import read_start, split_member
from deepspark_ops.ingest.caffe_lmdb import digest_caffe_lmdb, index_caffe_lmdb
from deepspark_ops.ingest.cifar_binary import cifar_files, digest_cifar, index_cifar
from deepspark_ops.ingest.idx import digest_idx, index_idx, is_idx
from deepspark_ops.ingest.image_list import digest_image_list, index_image_list
from deepspark_ops.ingest.records import SourceIndex

_LOOK_BYTES = 4096
_TAR_MARK = slice(257, 262)


def detect_format(source: Path) -> SourceFormat:
    """Look at a source and return its format.

    Raises:
        ConfigError: It does not exist, or is nothing that can be ingested.
    """
    path, member = split_member(source)
    require_source(source)
    if member is not None:
        return "image_list"
    if path.is_dir():
        return _folder_format(path)
    if cifar_files(path):
        return "cifar_binary"
    if is_idx(path):
        return "idx"
    start = read_start(path, _LOOK_BYTES)
    if start[_TAR_MARK] == b"ustar":
        msg = f"source={source} is an archive; name the image list in it, e.g. {source}::train.txt"
        raise ConfigError(msg)
    if b"\0" in start:
        msg = (
            f"source={source} is neither text nor a known format; allowed: image list, IDX, CIFAR .bin, a folder with"
            " data.mdb or data_batch_*.bin, ARCHIVE::LIST"
        )
        raise ConfigError(msg)
    return "image_list"


def _folder_format(folder: Path) -> SourceFormat:
    if (folder / "data.mdb").is_file():
        return "caffe_lmdb"
    if cifar_files(folder):
        return "cifar_binary"
    lists = sorted(path.name for path in folder.glob("*.txt"))
    hint = f"; did you mean the list {folder / lists[0]}?" if lists else ""
    msg = f"source={folder} is a folder with neither data.mdb (LMDB) nor data_batch_*.bin (CIFAR){hint}"
    raise ConfigError(msg)


def require_source(source: Path) -> None:
    """Refuse a source that does not exist.

    Raises:
        ConfigError: No such file or folder.
    """
    path, _ = split_member(source)
    if not path.exists():
        msg = f"source={source}: no such file or folder"
        raise ConfigError(msg)


def resolve_format(config: IngestConfig, source: Path) -> SourceFormat:
    """Return the format as configured, or as found for ``auto``.

    Raises:
        ConfigError: As ``detect_format``.
    """
    if config.source_format == "auto":
        return detect_format(source)
    require_source(source)
    is_folder = source.is_dir()
    if is_folder != (config.source_format == "caffe_lmdb") and config.source_format != "cifar_binary":
        kind = "a folder" if is_folder else "no folder"
        msg = f"source={source} is {kind}, which source_format={config.source_format} cannot be"
        raise ConfigError(msg)
    return config.source_format


def usual_test_source(source: Path, source_format: str) -> Path | None:
    """Return the test set that comes with a well-known training set under its usual name, if it is there."""
    usual: dict[str, tuple[tuple[str, str], ...]] = {
        "cifar_binary": (("data_batch_1.bin", "test_batch.bin"), ("train.bin", "test.bin")),
        "idx": (("train-images", "t10k-images"),),
    }
    if source.is_dir():
        found = [source / test for train, test in usual.get(source_format, ()) if (source / train).is_file()]
    else:
        name = source.name
        pairs = [pair for pair in usual.get(source_format, ()) if name.startswith(pair[0])]
        found = [source.with_name(name.replace(train, test)) for train, test in pairs]
    return next((path for path in found if path.is_file()), None)


def digest_source(config: IngestConfig, source: Path, source_format: SourceFormat) -> str:
    """Return a digest that changes when the source's content does.

    Raises:
        ConfigError: A part of the source is missing.
        DataError: A part of it cannot be read.
    """
    try:
        if source_format == "image_list":
            return digest_image_list(source, config.root_folder)
        if source_format == "idx":
            return digest_idx(source, _labels_for(config, source))
        if source_format == "cifar_binary":
            return digest_cifar(source)
        return digest_caffe_lmdb(source)
    except OSError as error:
        msg = f"{error.filename or source}: {error.strerror or error}"
        raise DataError(msg) from error


def index_source(config: IngestConfig, source: Path, source_format: SourceFormat, work: Path) -> SourceIndex:
    """Return the index of a source's records; ``work`` takes decompressed copies.

    Raises:
        ConfigError: A part of the source is missing.
        DataError: A part of it is damaged or empty.
    """
    try:
        if source_format == "image_list":
            return index_image_list(source, config.root_folder, work)
        if source_format == "idx":
            return index_idx(source, _labels_for(config, source), work)
        if source_format == "cifar_binary":
            return index_cifar(source)
        return index_caffe_lmdb(source)
    except OSError as error:
        msg = f"{error.filename or source}: {error.strerror or error}"
        raise DataError(msg) from error


def _labels_for(config: IngestConfig, source: Path) -> Path | None:
    """``labels`` belongs to ``source``; a test source's labels are found by their usual name."""
    return config.labels if source == config.source else None
