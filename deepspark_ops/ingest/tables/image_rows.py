"""Tables of images: Spark hands out their bytes once, into scratch files, which tasks read as any source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa

from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.files.file_spans import SpanReader
from deepspark_ops.ingest.files.image_files import listed_reader
from deepspark_ops.ingest.files.table_files import no_rows
from deepspark_ops.ingest.records import RecordReader, Rejection, SourceIndex, labels_of, sorted_classes
from deepspark_ops.ingest.tables.columns import Column, TableRoles, is_null, numbers, texts
from deepspark_ops.stores.store_path import DataPath


@dataclass(frozen=True)
class ImageRows:
    """The images in a part of a table, as a task read the part.

    Attributes:
        part: Number of the part.
        file: Name of the images' file in the scratch folder; "" where rows hold paths.
        sizes: Bytes of each row's image; empty for paths.
        paths: Each row's path; empty for bytes.
        ids: Each row's id; empty without.
        splits: Word of each row in the column of splits; empty without this column.
        groups: Value of each row in the column of groups; empty without this column.
        labels: Label of each row as text; None for a missing label.
        digest: Digest of the images' bytes.
    """

    part: int
    file: str
    sizes: list[int]
    paths: list[str]
    ids: list[str]
    splits: list[str]
    labels: list[str | None]
    groups: list[str]
    digest: str = ""

    def to_json(self) -> str:
        """Return the JSON text that a task sends to the driver."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> ImageRows:
        """Return what ``to_json`` wrote."""
        return cls(**json.loads(text))


def pack_images(batches: Iterable[pa.RecordBatch], roles: TableRoles, folder: Path, part: int) -> ImageRows:
    """Write the images of a part of the table one after the other into a scratch folder; of paths, keep the paths."""
    assert roles.image is not None
    has_bytes = roles.image.kind == "bytes"
    image_rows = ImageRows(part, f"{part:05d}-{uuid4().hex}.images" if has_bytes else "", [], [], [], [], [], [])
    handle = (folder / image_rows.file).open("wb") if has_bytes else None
    digest = hashlib.sha256()
    try:
        for batch in batches:
            if handle is not None:
                images = [image or b"" for image in batch.column(roles.image.name).to_pylist()]
                packed = b"".join(images)
                handle.write(packed)
                digest.update(packed)
                image_rows.sizes.extend(map(len, images))
            else:
                image_rows.paths.extend(_texts(batch, roles.image))
            for column, column_texts in (
                (roles.id, image_rows.ids),
                (roles.split, image_rows.splits),
                (roles.group, image_rows.groups),
            ):
                column_texts.extend(() if column is None else _texts(batch, column))
            image_rows.labels.extend(_labels(batch, roles))
    finally:
        if handle is not None:
            handle.close()
    return replace(image_rows, digest=digest.hexdigest())


def images_digest(parts: Sequence[ImageRows], stamps: bytes) -> str:
    """Return a digest of a table's images, labels and names, for a source without files to look at.

    ``stamps`` are of the images that the table names by path.
    """
    values = [
        [part.digest, part.sizes, part.paths, part.ids, part.splits, part.labels, *filter(None, [part.groups])]
        for part in parts
    ]
    return hashlib.sha256(json.dumps(values).encode() + stamps).hexdigest()


def _texts(batch: pa.RecordBatch, column: Column) -> list[str]:
    return [text or "" for text in texts(batch.column(column.name)).to_pylist()]


def _labels(batch: pa.RecordBatch, roles: TableRoles) -> list[str | None]:
    label = roles.labels[0]
    held = batch.column(label.name)
    if label.kind == "text":
        return [None if text is None else str(text) for text in texts(held).to_pylist()]
    values = numbers(held, np.float64)
    missing = is_null(held)
    return [None if is_none else f"{value:.17g}" for value, is_none in zip(values.tolist(), missing, strict=True)]


def index_images(
    parts: Sequence[ImageRows], roles: TableRoles, source: DataPath, root: DataPath, folder: Path
) -> SourceIndex:
    """Return the index of a table's images; paths start from ``root``, packed images are in ``folder``.

    Raises:
        ConfigError: Several labels, labels that are no classes, or weights.
        DataError: No rows.
    """
    assert roles.image is not None
    if len(roles.labels) > 1:
        msg = f"label_column={','.join(label.name for label in roles.labels)}: an image has one class; name one column"
        raise ConfigError(msg)
    if roles.weight is not None:
        msg = f"weight_column={roles.weight.name}: samples that are images have no weights; leave it out"
        raise ConfigError(msg)
    labels = [label for part in parts for label in part.labels]
    if not labels:
        raise no_rows(source)
    has_bytes = roles.image.kind == "bytes"
    paths = [path for part in parts for path in part.paths]
    names = [row_id for part in parts for row_id in part.ids] or paths or [f"{row:08d}" for row in range(len(labels))]
    splits = [word for part in parts for word in part.splits]
    groups = [group for part in parts for group in part.groups]
    keep = np.array([label is not None for label in labels])
    rejected = tuple(
        Rejection(row, names[row], None, f'label "{roles.labels[0].name}" is missing')
        for row in np.flatnonzero(~keep).tolist()
    )
    rows = np.flatnonzero(keep)
    reader: RecordReader
    if has_bytes:
        sizes = np.array([size for part in parts for size in part.sizes], np.int64)
        counts = [len(part.sizes) for part in parts]
        offsets = np.concatenate([np.cumsum([0, *part.sizes])[:-1] for part in parts]).astype(np.int64)
        spans = np.stack([np.repeat(np.arange(len(parts)), counts), offsets, np.where(sizes, sizes, -1)], axis=1)
        files = tuple(folder / part.file for part in parts)
        reader = SpanReader(spans, files, "the row has no image").subset(rows)
    else:
        listed = tuple(paths[row] for row in rows.tolist())
        reader = listed_reader(root, listed, named_by=f"the table {source}")
    known_labels = [label for label in labels if label is not None]
    is_text = roles.labels[0].kind == "text"
    classes = sorted_classes(known_labels) if is_text else ()
    return SourceIndex(
        labels=np.array(
            labels_of(known_labels, classes) if is_text else [_class(label, source) for label in known_labels], np.int64
        ),
        names=[names[row] for row in rows.tolist()],
        reader=reader,
        decode_color=True,
        rejected=rejected,
        class_names=classes,
        are_names=is_text,
        splits=[splits[row] for row in rows.tolist()] if splits else (),
        groups=[groups[row] for row in rows.tolist()] if groups else (),
    )


def _class(label: str, source: DataPath) -> int:
    value = float(label)
    if value != np.floor(value):
        msg = f"{source}: label {label} is no class number, and an image has a class; name another label_column"
        raise ConfigError(msg)
    return int(value)
