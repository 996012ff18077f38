"""TFRecord files of ``tf.train.Example``, the image sets of TensorFlow's tools; read without TensorFlow.

Framing: length as a little-endian uint64, masked CRC-32C of the length, record, masked CRC-32C of the record
(TensorFlow, tensorflow/core/lib/io/record_writer.h). The tasks that read a record compare the record's checksum.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from caffe_import.file_access.regular_file import open_regular
from caffe_import.files.crc32c import masked_crc32c
from caffe_import.files.datum import Image
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.archive import decompressed
from deepspark_ops.ingest.files.example_message import Value, kind_of, parse_example
from deepspark_ops.ingest.files.file_spans import opened_files
from deepspark_ops.ingest.files.image_files import digest_of_files
from deepspark_ops.ingest.records import (
    LocatedRecords,
    ReadRecord,
    RecordError,
    Rejection,
    SourceIndex,
    labels_of,
    sorted_classes,
)
from deepspark_ops.ingest.sources.format import Format, Look
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath, paths_in

_HEADER_BYTES = 12
_FOOTER_BYTES = 4
_LARGE_BYTES = 2**30
_FILE_NAME = re.compile(r".+\.tfrecords?(\.gz)?|.+-\d{5}-of-\d{5}(\.gz)?")
_NUMBERING = re.compile(r"[-_.]?(\d+|\d+-of-\d+)?(\.tfrecords?)?([-_.]\d+(-of-\d+)?)?(\.gz)?$")
_SETS = re.compile(r"train|test|val|eval", re.IGNORECASE)
_IMAGES = ("image/encoded", "image_raw", "image", "image_bytes", "jpg", "jpeg", "png", "img")
_LABELS = ("image/class/label", "label", "class", "y", "target", "image/class/text", "label_name")
_KEYS = ("image/filename", "filename", "file_name", "image/key/sha256", "id", "key")
_SIZES = (
    ("image/height", "image/width", "image/channels"),
    ("height", "width", "depth"),
    ("height", "width", "channels"),
)


@dataclass(frozen=True)
class TfrecordReader(LocatedRecords):
    """Reads the images of records by number.

    Attributes:
        files: Decompressed files.
        column: Feature that holds the image.
        locations: (n, 3): number of the file, offset and length of the record in bytes.
    """

    files: tuple[DataPath, ...]
    column: str

    @contextmanager
    def opened(self) -> Iterator[ReadRecord]:
        """See ``RecordReader``."""
        with opened_files(self.files) as read_span:
            yield lambda index: self._read(read_span, index)

    def _read(self, read_span: Callable[[int, int, int], bytes], index: int) -> Image | bytes:
        number, offset, length = self.locations[index].tolist()
        frame = read_span(number, offset, length + _FOOTER_BYTES)
        record = frame[:length]
        if frame[length:] != struct.pack("<I", masked_crc32c(record)):
            msg = f"damaged: the record at byte {offset:,} of {self.files[number].name} does not fit its checksum"
            raise RecordError(msg)
        features = parse_example(record)
        value = features.get(self.column)
        if not isinstance(value, bytes):
            problem = "is missing" if value is None else f"holds {kind_of(value)}"
            msg = f'feature "{self.column}" {problem}; allowed: an image as bytes'
            raise RecordError(msg)
        return _pixels(value, features)


def index_tfrecord(
    config: IngestConfig, source: DataPath, work: DataPath, n_records: int | None = None, *, with_labels: bool = True
) -> SourceIndex:
    """Read labels (each is 0 without ``with_labels``) and names in a pass over every file, up to ``n_records``.

    The image is compressed, or raw with features of the size. The label is a whole number or the class's name.

    Raises:
        ConfigError: The features are not there, or a folder holds several sets.
        DataError: A file is damaged or holds no Example.
    """
    files: list[DataPath] = []
    rows: list[_Row] = []
    columns: _Columns | None = None
    for number, path in enumerate(_files(source)):
        if n_records is not None and len(rows) >= n_records:
            break
        files.append(decompressed(path, work))
        for row, (offset, length, record) in enumerate(islice(_records(files[-1]), n_records)):
            features = _parsed(path, row, record)
            columns = columns or _columns(config, source, features, with_labels=with_labels)
            rows.append(_row((number, offset, length), f"{path.name}_{row}", features, columns))
    if columns is None:
        msg = f"{source}: no record"
        raise DataError(msg)
    return _index(rows[:n_records], tuple(files), columns)


_Columns = tuple[str] | tuple[str, str]
"""The features of the image and, if labels are read, of the label."""


@dataclass(frozen=True)
class _Row:
    """A record's location, name and label; an unusable record has the reason in ``why_bad``."""

    location: tuple[int, int, int]
    name: str
    label: int | str | None
    why_bad: str | None


def _row(location: tuple[int, int, int], name: str, features: Mapping[str, Value], columns: _Columns) -> _Row:
    key = next((features[key] for key in _KEYS if isinstance(features.get(key), bytes)), None)
    if isinstance(key, bytes) and key:
        name = key.decode("utf-8", "surrogateescape")
    for column in columns:
        if column not in features:
            return _Row(location, name, None, f'feature "{column}" is missing')
    if len(columns) == 1:
        return _Row(location, name, 0, None)
    value = features[columns[1]]
    if isinstance(value, bytes):
        return _Row(location, name, value.decode("utf-8", "surrogateescape"), None)
    if len(value) != 1 or value[0] != int(value[0]):
        return _Row(location, name, None, f'feature "{columns[1]}" holds {value[:5]}, which is no class')
    return _Row(location, name, int(value[0]), None)


def _index(rows: Sequence[_Row], files: tuple[DataPath, ...], columns: _Columns) -> SourceIndex:
    are_names = isinstance(next((row.label for row in rows if row.label is not None), None), str)
    good = [row for row in rows if row.why_bad is None and isinstance(row.label, str) == are_names]
    bad = [
        Rejection(position, row.name, None, row.why_bad or f'label "{row.label}": of other records it is another type')
        for position, row in enumerate(rows)
        if row.why_bad is not None or isinstance(row.label, str) != are_names
    ]
    if not good:
        msg = f"{files[0].parent}: none of {len(rows):,} records can be used; first: {bad[0].name}: {bad[0].reason}"
        raise DataError(msg)
    texts = [str(row.label) for row in good]
    classes = sorted_classes(texts) if are_names else ()
    labels = labels_of(texts, classes) if are_names else [int(text) for text in texts]
    return SourceIndex(
        labels=np.array(labels, np.int64),
        names=[row.name for row in good],
        reader=TfrecordReader(np.array([row.location for row in good], np.int64), files, columns[0]),
        decode_color=True,  # as an image list
        rejected=tuple(bad),
        class_names=classes,
        are_names=are_names,
    )


def _columns(config: IngestConfig, source: DataPath, features: Mapping[str, Value], *, with_labels: bool) -> _Columns:
    columns: list[str] = []
    options = (("image_column", config.image_column, _IMAGES), ("label_column", config.label_column, _LABELS))
    for option, name, usual in options:
        if option == "label_column" and not with_labels:
            return (columns[0],)
        column = next((key for key in ((name,) if name is not None else usual) if key in features), None)
        if column is None:
            missing = f'no feature "{name}"' if name is not None else f"no feature of a usual name ({', '.join(usual)})"
            held = ", ".join(f"{key} ({kind_of(value)})" for key, value in sorted(features.items())) or "nothing"
            msg = f"{source}: the first record has {missing}; it holds {held}; name one with {option}"
            raise ConfigError(msg)
        columns.append(column)
    return columns[0], columns[1]


def _pixels(value: bytes, features: Mapping[str, Value]) -> Image | bytes:
    """Return BGR pixels if the record has a size that fits raw pixels, else the bytes of a compressed image."""
    for names in _SIZES:
        sizes = [features[name] for name in names if name in features]
        numbers = [int(size[0]) for size in sizes if not isinstance(size, bytes)]
        height, width, channels = (*numbers, 1)[:3] if len(numbers) >= 2 else (0, 0, 0)
        if height * width * channels == len(value):
            pixels = np.frombuffer(value, np.uint8).reshape(height, width, channels)
            return np.ascontiguousarray(pixels[:, :, ::-1].transpose(2, 0, 1))
    return value


def _parsed(path: DataPath, row: int, record: bytes) -> dict[str, Value]:
    try:
        return parse_example(record)
    except ValueError as error:
        msg = f"{path}: record {row:,}: {error}"
        raise DataError(msg) from error


def _records(path: DataPath) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, length and bytes of each record."""
    size = path.stat().st_size
    if not size:
        return
    with (
        local_copy(path) as local,
        open_regular(local) as handle,
        mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        at = 0
        while at < size:
            start = at + _HEADER_BYTES
            length = struct.unpack("<Q", content[at : at + 8])[0] if start <= size else size
            if start + length + _FOOTER_BYTES > size:
                msg = (
                    f"{path}: damaged or cut short: the record at byte {at:,} ends past the file's end; fetch it again"
                )
                raise DataError(msg)
            yield start, length, content[start : start + length]
            at = start + length + _FOOTER_BYTES


def _files(source: DataPath) -> tuple[DataPath, ...]:
    if not source.is_dir():
        return (source,)
    files = tuple(sorted(path for path in source.iterdir() if _FILE_NAME.fullmatch(path.name)))
    sets = sorted({set_name for path in files if _SETS.search(set_name := _NUMBERING.sub("", path.name))})
    if len(sets) > 1:
        msg = (
            f"source={source} holds several sets: {', '.join(sets)}; put the files of each into a folder of its own and"
            " give them as source and test_source"
        )
        raise ConfigError(msg)
    if not files:
        msg = f"{source}: no TFRecord file here; names end in .tfrecord, .tfrecords or -00000-of-00010"
        raise ConfigError(msg)
    return files


def _looks_like(look: Look) -> bool:
    if look.kind == "file":
        return _is_framed(look.start)
    first = next((path for path in paths_in(look.path) if _FILE_NAME.fullmatch(path.name)), None)
    return first is not None and _is_framed(Look(first).start)


def _is_framed(start: bytes) -> bool:
    """Return whether the first record's length has a correct checksum; a foreign file passes once in 2**32."""
    return len(start) >= _HEADER_BYTES and start[8:12] == struct.pack("<I", masked_crc32c(start[:8]))


FORMAT = Format(
    kinds=frozenset({"file", "folder"}),
    options=frozenset({"image_column", "label_column"}),
    looks_like=_looks_like,
    digest=lambda _config, source: digest_of_files(_files(source)),
    index=index_tfrecord,
    index_unlabelled=partial(index_tfrecord, with_labels=False),
    is_large=lambda source: sum(path.stat().st_size for path in _files(source)) > _LARGE_BYTES,
    index_start=index_tfrecord,
)
