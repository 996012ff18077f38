"""Hadoop SequenceFiles of images, in the layouts of CaffeOnSpark and of the Java DeepSpark, and of Datum records.

- CaffeOnSpark, Binary2Sequence: BytesWritable with a serialized (file, label), BytesWritable with the image file;
- CaffeOnSpark, LMDB2Sequence: BytesWritable with a serialized (id, label, channels, height, width, encoded),
  BytesWritable with an image file or planes;
- DeepSpark: FloatWritable label, ArrayPrimitiveWritable of float pixels, a square of 3 planes or 1;
- Spark's saveAsSequenceFile of (id, Caffe's Datum): Text, BytesWritable or a number, BytesWritable.

Source: yahoo/CaffeOnSpark @48fb99b, tools/Binary2Sequence.scala, tools/LMDB2Sequence.scala, SeqImageDataSource.scala;
deepspark/deepspark @8e77cfe, utils/ImagenetSampler.java.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from math import isqrt
from typing import Literal

import numpy as np

from caffe_import.errors import DataSourceError
from caffe_import.files.datum import Image, parse_datum
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.datum_records import content_sum, distinct_names, image_of_datum
from deepspark_ops.ingest.files.file_spans import opened_files
from deepspark_ops.ingest.files.hadoop_files import (
    MAGIC,
    SequenceHeader,
    read_header,
    read_records,
    read_text,
    values_at,
)
from deepspark_ops.ingest.files.image_files import digest_of_files
from deepspark_ops.ingest.files.java_objects import MAGIC as JAVA_MAGIC
from deepspark_ops.ingest.files.java_objects import parse_java_object
from deepspark_ops.ingest.records import LocatedRecords, ReadRecord, RecordError, Rejection, SourceIndex
from deepspark_ops.ingest.sources.format import Format, Look
from deepspark_ops.stores.store_path import DataPath, paths_in

Layout = Literal["image", "floats", "datum"]
_LARGE_BYTES = 2**30
_CACHED_BLOCKS = 16
_NUMBER_KEYS = {"IntWritable": ">i", "LongWritable": ">q", "VIntWritable": ">b"}


@dataclass(frozen=True)
class SequenceReader(LocatedRecords):
    """Reads values by number.

    Attributes:
        files: The SequenceFiles.
        headers: One per file.
        layout: Layout of a value.
        locations: (n, 7): number of the file, offset, size, index in the block or -1; channels, height and width of raw
            planes, zeros for values with a shape inside.
    """

    files: tuple[DataPath, ...]
    headers: tuple[SequenceHeader, ...]
    layout: Layout

    @contextmanager
    def opened(self) -> Iterator[ReadRecord]:
        """See ``RecordReader``."""
        with opened_files(self.files) as read_span:
            blocks: dict[tuple[int, int], list[bytes]] = {}

            def read(index: int) -> Image | bytes:
                number, offset, size, block_index, *shape = self.locations[index].tolist()
                if (number, offset) not in blocks:
                    while len(blocks) >= _CACHED_BLOCKS:
                        del blocks[next(iter(blocks))]
                    content = read_span(number, offset, size)
                    blocks[number, offset] = values_at(content, self.headers[number], is_block=block_index >= 0)
                value = blocks[number, offset][max(block_index, 0)]
                return _record(value, self.layout, tuple(shape))

            yield read


@dataclass(frozen=True)
class _Entry:
    """A record's description on the driver; an unusable record has ``label=None`` and the reason in ``why_bad``.

    ``content`` is a checksum of the image if the name is the record's key.
    """

    location: tuple[int, int, int, int]
    name: str
    label: int | None
    shape: tuple[int, int, int] = (0, 0, 0)
    why_bad: str = ""
    content: int = 0
    position: str = ""


def index_sequence_file(
    _config: IngestConfig, source: DataPath, _work: DataPath, n_records: int | None = None
) -> SourceIndex:
    """Read keys and labels in a pass over a file, or over the files of Spark's saveAsSequenceFile, up to ``n_records``.

    Raises:
        ConfigError: Keys and values are of no known layout.
        DataError: A file is damaged, or no record can be used.
    """
    files = _files(source)
    headers = tuple(read_header(path) for path in files)
    layouts = {_layout(path, header) for path, header in zip(files, headers, strict=True)} - {None}
    if len(layouts) != 1:
        problem = f"files of different layouts: {', '.join(map(str, layouts))}" if layouts else "no record"
        msg = f"{source}: {problem}"
        raise DataError(msg)
    layout = layouts.pop() or "datum"
    entries = list(islice(_entries(files, headers, layout), n_records))
    good = [entry for entry in entries if entry.label is not None]
    bad = [
        Rejection(position, entry.name, None, entry.why_bad)
        for position, entry in enumerate(entries)
        if entry.label is None
    ]
    if not good:
        first = f"; first: {bad[0].name}: {bad[0].reason}" if bad else ""
        msg = f"{source}: none of {len(entries):,} records can be used{first}"
        raise DataError(msg)
    return SourceIndex(
        labels=np.array([entry.label for entry in good], np.int64),
        names=distinct_names(
            [entry.name for entry in good],
            [f"{entry.position}_{entry.name}" for entry in good],
            [entry.content for entry in good],
        ),
        reader=SequenceReader(
            np.array([(*entry.location, *entry.shape) for entry in good], np.int64),
            files,
            headers,
            layout,
        ),
        rejected=tuple(bad),
    )


def _layout(path: DataPath, header: SequenceHeader) -> Layout | None:
    """Return the layout of a file's values; None for an empty file whose first key would decide."""
    classes = (header.key_class, header.value_class)
    if classes == ("FloatWritable", "ArrayPrimitiveWritable"):
        return "floats"
    if header.value_class == "BytesWritable" and header.key_class in ("Text", "NullWritable", *_NUMBER_KEYS):
        return "datum"
    if classes == ("BytesWritable", "BytesWritable"):
        first = next(read_records(path, header), None)
        if first is None:
            return None
        return "image" if first[1][4:].startswith(JAVA_MAGIC) else "datum"
    msg = (
        f"{path}: keys are {header.key_class}, values {header.value_class}; allowed: BytesWritable with BytesWritable"
        " (CaffeOnSpark), FloatWritable with ArrayPrimitiveWritable (DeepSpark), Text or a number with BytesWritable"
        " that hold Caffe's Datum"
    )
    raise ConfigError(msg)


def _entries(files: tuple[DataPath, ...], headers: tuple[SequenceHeader, ...], layout: Layout) -> Iterator[_Entry]:
    for number, (path, header) in enumerate(zip(files, headers, strict=True)):
        for row, (location, key, value) in enumerate(read_records(path, header)):
            where = (number, location.offset, location.size, location.index)
            name = f"{path.stem}_{row}"
            try:
                if layout == "floats":
                    yield _Entry(where, name, _class_number(struct.unpack(">f", key)[0]))
                elif layout == "image":
                    yield _caffeonspark_entry(where, key)
                else:
                    datum = parse_datum(value[4:], where="value")
                    key_name = _key_text(key, header.key_class) or name
                    yield _Entry(where, key_name, datum.label, content=content_sum(datum), position=name)
            except (DataSourceError, ValueError, IndexError, struct.error) as error:
                yield _Entry(where, name, None, why_bad=str(error))


def _caffeonspark_entry(where: tuple[int, int, int, int], key: bytes) -> _Entry:
    """Read a key: a pair (file, label) or (id, label, channels, height, width, encoded)."""
    fields = parse_java_object(key[4:])
    if not isinstance(fields, list) or len(fields) not in (2, 6):
        msg = "the key is neither (file, label) nor (id, label, channels, height, width, encoded)"
        raise ValueError(msg)
    shape = (0, 0, 0)
    if len(fields) == 6 and not fields[5]:
        shape = (int(fields[2]), int(fields[3]), int(fields[4]))
    return _Entry(where, str(fields[0]), _class_number(float(fields[1])), shape)


def _class_number(value: float) -> int:
    if value != int(value):
        msg = f"label {value} is no class number"
        raise ValueError(msg)
    return int(value)


def _key_text(key: bytes, key_class: str) -> str:
    if key_class == "Text":
        return read_text(key, 0)[0]
    if key_class == "BytesWritable":
        return key[4:].decode("utf-8", "surrogateescape")
    return str(struct.unpack(_NUMBER_KEYS[key_class], key)[0]) if key_class in _NUMBER_KEYS else ""


def _record(value: bytes, layout: Layout, shape: tuple[int, ...]) -> Image | bytes:
    if layout == "floats":
        return _float_image(value)
    content = value[4:]  # after a BytesWritable's length
    if layout == "datum":
        try:
            return image_of_datum(content, where="value")
        except DataSourceError as error:
            raise RecordError(str(error)) from error
    if not any(shape):
        return content
    if len(content) != np.prod(shape):
        msg = f"shape {shape} needs {np.prod(shape):,} bytes, the value has {len(content):,}"
        raise RecordError(msg)
    return np.frombuffer(content, np.uint8).reshape(shape)


def _float_image(value: bytes) -> Image:
    """Return the floats of an ArrayPrimitiveWritable as (3, s, s) or (1, s, s): DeepSpark stores no shape."""
    kind, at = value[2 : 2 + value[1]].decode("utf-8", "replace"), 2 + value[1]
    floats = np.frombuffer(value, ">f4", offset=at + 4) if kind == "float" else np.empty(0)
    for channels in (3, 1):
        side = isqrt(floats.size // channels)
        if floats.size and channels * side * side == floats.size:
            return floats.reshape(channels, side, side).astype(np.float32)
    msg = f"{floats.size:,} values of type {kind or '?'}; allowed: floats of a square image with 3 planes or 1"
    raise RecordError(msg)


def _files(source: DataPath) -> tuple[DataPath, ...]:
    if not source.is_dir():
        return (source,)
    files = tuple(sorted(path for path in source.iterdir() if path.is_file() and not path.name.startswith((".", "_"))))
    if not files:
        msg = f"{source}: no SequenceFile here"
        raise ConfigError(msg)
    return files


def _looks_like(look: Look) -> bool:
    if look.kind == "file":
        return look.start.startswith(MAGIC) and len(look.start) > 4 and look.start[3] < 32
    # The part files of a folder that Spark wrote; the folder also holds _SUCCESS.
    first = next(iter([*paths_in(look.path, "part-*"), *paths_in(look.path, "*.seq")]), None)
    return first is not None and first.is_file() and Look(first).start.startswith(MAGIC)


FORMAT = Format(
    kinds=frozenset({"file", "folder"}),
    looks_like=_looks_like,
    digest=lambda _config, source: digest_of_files(_files(source)),
    index=index_sequence_file,
    is_large=lambda source: sum(path.stat().st_size for path in _files(source)) > _LARGE_BYTES,
    index_start=index_sequence_file,
)
