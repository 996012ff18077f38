"""Allowed files in lists of raw data: files of the source's folders, and of folders in the config."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caffe_import.file_access.allowed_roots import allowed_roots_used
from deepspark_ops.config.ingest import ARCHIVE_MARK, IngestConfig, SourceConfig, is_catalog_table
from deepspark_ops.ingest.files.archive import UnpackLimits, split_member, unpack_limits
from deepspark_ops.processes.named_files import allowed_roots
from deepspark_ops.stores.store_path import StorePath


def source_folders(config: SourceConfig) -> list[Path]:
    """Return the local folders of the raw data: a source folder, or the parent of a source file.

    Object stores do not count: a path in a store names no local file.
    """
    sources = [path for path in (config.source, config.test_source, config.validation_source) if path is not None]
    files = [split_member(path)[0] for path in sources if not is_catalog_table(path)]
    folders = [path if path.is_dir() else path.parent for path in files if not isinstance(path, StorePath)]
    root = config.root_folder
    if root is not None and not isinstance(root, StorePath) and ARCHIVE_MARK not in str(config.source):
        folders.append(root.parent if _begins_names(root) else root)
    return folders


def _begins_names(root: Path) -> bool:
    """Return whether a root folder is only the beginning of names in the folder above."""
    if root.is_dir() or not root.parent.is_dir():
        return False
    with os.scandir(root.parent) as entries:
        return any(entry.name.startswith(root.name) for entry in entries)


@contextmanager
def sources_limited(config: IngestConfig) -> Iterator[None]:
    """Apply a config's limits on raw data inside the block: allowed files of lists, and sizes after unpacking."""
    sizes = UnpackLimits(config.member_mib, config.unpacked_gib)
    roots = allowed_roots(config.listed_files, source_folders(config))
    with allowed_roots_used(roots), unpack_limits(sizes):
        yield
