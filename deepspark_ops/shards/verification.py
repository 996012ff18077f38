"""Verification of a split: the shards and the files beside the shards are those of the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from caffe_import.data.lmdb_pages import check_pages
from caffe_import.errors import CaffeImportError
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import DataError
from deepspark_ops.shards.manifest import (
    DatasetManifest,
    FileRecord,
    ShardRecord,
    read_manifest,
    sha256_of_file,
    shard_folder,
)
from deepspark_ops.shards.reader import REPAIR, open_dataset, shard_source, wrong_count
from deepspark_ops.stores.store_path import DataPath, StorePath

DIGESTS_UP_TO_BYTES = 2**30
"""Size of a split up to which ``verify`` reads the whole split, in about a second, unless an option decides."""


def verify(split_folder: DataPath, *, digests: bool | None = True) -> DatasetManifest:
    """Compare every file of a split with the manifest: sizes and counts, every byte, then each shard's first sample.

    The counts come from the files' headers: LMDB trusts pages, so a digest is compared before the pages are walked. If
    not every byte is read, another process walks the pages of LMDB shards.

    For a split in a store, compare the sizes of all objects and the first shard; a fetch compares the other shards.

    Args:
        split_folder: Holds the manifest and the shards.
        digests: Whether to read every byte; None: for local shards of at most ``DIGESTS_UP_TO_BYTES``.

    Raises:
        DataError: A file differs; the message has the first difference and the remedy.
    """
    manifest = read_manifest(split_folder)
    if isinstance(split_folder, StorePath):
        _verify_objects(split_folder, manifest)
        for companion in (record for shard in manifest.shards for record in shard.beside if digests):
            _verify_digest(shard_folder(split_folder), companion)
        _verify_first_samples(split_folder, manifest, range(len(manifest.shards)) if digests else (0,))
        return manifest
    if digests is None:
        digests = manifest.n_bytes <= DIGESTS_UP_TO_BYTES
    for shard in manifest.shards:
        _verify_shard(split_folder, manifest, shard)
        if digests:
            _verify_digest(split_folder, shard)
            for companion in shard.beside:
                _verify_digest(split_folder, companion)
    for record in (manifest.mean_file, manifest.source_files):
        if digests and record is not None:
            _verify_digest(split_folder, record)
    if not digests and manifest.shard_format == "lmdb":
        _verify_pages([split_folder / shard.file for shard in manifest.shards])
    _verify_first_samples(split_folder, manifest, range(len(manifest.shards)))
    return manifest


def _verify_objects(split_folder: StorePath, manifest: DatasetManifest) -> None:
    """Compare the sizes of shards in a store, and the bytes of the mean image, with the manifest."""
    inner = "/data.mdb" if manifest.shard_format == "lmdb" else ""
    try:
        for shard in manifest.shards:
            path = shard_folder(split_folder) / f"{shard.file}{inner}"
            n_bytes = path.stat().st_size
            if n_bytes != shard.n_bytes:
                msg = f"shard {path}: manifest says {shard.n_bytes:,} bytes, found {n_bytes:,}; {REPAIR}"
                raise DataError(msg)
        if manifest.mean_file is not None:
            _verify_digest(split_folder, manifest.mean_file)
    except OSError as error:
        msg = f"{error.filename or split_folder}: {error.strerror or error}; the manifest names it; {REPAIR}"
        raise DataError(msg) from error


def _verify_first_samples(split_folder: DataPath, manifest: DatasetManifest, shards: Iterable[int]) -> None:
    """Compare the first sample of shards with the manifest: digests do not show an edited manifest."""
    with open_dataset(split_folder) as dataset:
        for shard in shards:
            first = dataset.read(shard, 0, 1)[1][0]
            if not manifest.n_classes:
                continue
            label = int(first)
            if not 0 <= label < manifest.n_classes or not manifest.label_histogram[label]:
                msg = (
                    f"{dataset.sample_name(shard, 0)} has label {label}, the manifest knows"
                    f" {manifest.n_classes} classes and counts no such sample; {REPAIR}"
                )
                raise DataError(msg)


def verify_layer_sources(nets: Sequence[caffe_pb2.NetParameter]) -> None:
    """Walk the LMDBs of Data layers: a damaged page would kill a process that reads the page later.

    Args:
        nets: Nets with sources that are absolute, or relative to the working directory. Missing sources are skipped.

    Raises:
        DataError: An LMDB is damaged.
    """
    of_data = (layer.data_param for net in nets for layer in net.layer if layer.type == "Data")
    folders = {Path(param.source) for param in of_data if param.backend == caffe_pb2.DataParameter.LMDB}
    _verify_pages(sorted(folder for folder in folders if (folder / "data.mdb").is_file()))


def _verify_pages(folders: Sequence[Path]) -> None:
    try:
        check_pages(folders)
    except CaffeImportError as error:
        raise DataError(str(error)) from error


def _verify_shard(split_folder: Path, manifest: DatasetManifest, shard: ShardRecord) -> None:
    source = shard_source(split_folder / shard.file, manifest, None)
    try:
        n_samples = len(source)
    except CaffeImportError as error:
        msg = f"shard {error}; {REPAIR}"
        raise DataError(msg) from error
    finally:
        source.close()
    if n_samples != shard.n_rows:
        raise DataError(wrong_count(str(split_folder / shard.file), shard.n_rows, n_samples))
    n_bytes = _file_of(split_folder, shard).stat().st_size
    if n_bytes != shard.n_bytes:
        msg = f"shard {split_folder / shard.file}: manifest says {shard.n_bytes:,} bytes, found {n_bytes:,}; {REPAIR}"
        raise DataError(msg)


def _verify_digest(split_folder: DataPath, record: FileRecord) -> None:
    path = _file_of(split_folder, record)
    if not path.is_file():
        msg = f"{path}: the manifest names this file, it is missing; {REPAIR}"
        raise DataError(msg)
    digest = sha256_of_file(path)
    if digest != record.sha256:
        msg = f"{path}: SHA-256 is {digest[:12]}..., the manifest says {record.sha256[:12]}...; {REPAIR}"
        raise DataError(msg)


def _file_of(split_folder: DataPath, record: FileRecord) -> DataPath:
    path = split_folder / record.file
    return path / "data.mdb" if path.is_dir() else path
