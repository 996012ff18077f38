"""Files of a dataset's folder, for tests that look into a folder or build a folder by hand."""

import hashlib
import re
from pathlib import Path

from deepspark_ops.shards.manifest import (
    DatasetManifest,
    DatasetRoot,
    FileRecord,
    read_manifest,
    read_root,
    write_manifest,
    write_root,
)


def put_manifest_text(dataset: Path, split: str, text: str | bytes) -> str:
    """Let ``text`` be the manifest of a split; return its digest."""
    content = text.encode() if isinstance(text, str) else text
    digest = hashlib.sha256(content).hexdigest()
    record = FileRecord(file=f"manifest-{digest[:12]}.json", sha256=digest)
    (dataset / split).mkdir(parents=True, exist_ok=True)
    (dataset / split / record.file).write_bytes(content)
    _put(dataset, split, record)
    return f"sha256:{digest}"


def put_manifest(split_folder: Path, manifest: DatasetManifest) -> None:
    """Write ``manifest`` as the manifest of a split."""
    _put(split_folder.parent, split_folder.name, write_manifest(split_folder, manifest))


def _put(dataset: Path, split: str, record: FileRecord) -> None:
    root = read_root(dataset)
    write_root(dataset, DatasetRoot(splits={**({} if root is None else root.splits), split: record}))


def listed(split_folder: Path, name: str) -> Path:
    """Return the file that a manifest names as ``rejected.jsonl``, ``warnings.jsonl`` or ``mean.binaryproto``."""
    manifest = read_manifest(split_folder)
    files = (manifest.rejected_file, manifest.warnings_file, manifest.mean_file and manifest.mean_file.file)
    stem, _, suffix = name.partition(".")
    (file,) = (file for file in files if file is not None and re.fullmatch(rf"{stem}-[0-9a-f]{{12}}\.{suffix}", file))
    return split_folder / file
