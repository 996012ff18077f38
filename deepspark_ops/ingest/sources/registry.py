"""The format of a source: the first of ``SOURCE_FORMATS`` that recognises the source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module

from deepspark_ops.config.ingest import FileStamp, IngestConfig, is_catalog_table
from deepspark_ops.config.shared_options.source_formats import SOURCE_FORMATS, TABLE_FORMATS, SourceFormat
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.archive import split_member
from deepspark_ops.ingest.files.image_files import file_stamp
from deepspark_ops.ingest.records import SourceIndex
from deepspark_ops.ingest.sources import tables
from deepspark_ops.ingest.sources.format import Format, Kind, Look
from deepspark_ops.stores.store_path import DataPath, StorePath, objects_below

_FILE_SYSTEM = re.compile(r"(?:^|/)(?P<scheme>s3n|gcs|wasbs?|dbfs|https?|ftp):/+(?P<rest>.*)")
"""A URL after its conversion to a path: one slash instead of two, perhaps after the working folder."""
_COPY = {
    "s3n": "or call it s3://",
    "gcs": "or call it gs://",
    "http": "curl -O",
    "https": "curl -O",
    "ftp": "curl -O",
}
_TABLE = "write a table, in Python: pandas.{}.to_parquet('table.parquet')"
_ARRAYS = "write HDF5, in Python: h5py.File('data.h5', 'w').update(data=images_nchw, label=labels)"
_PHOTOS = "unpack it and write an image list: for f in *.cls; do echo ${f%.cls}.jpg $(cat $f); done > train.txt"
_FOREIGN: dict[str, str] = {
    r"PK\x03\x04.{26}(\[Content_Types\]|xl/|_rels/)|\xd0\xcf\x11\xe0": "an Excel file; "
    + _TABLE.format("read_excel(FILE)"),
    r"PK\x03\x04.{26}[^\0]{1,200}\.npy": f"a numpy file of arrays; {_ARRAYS}",
    r"\x93NUMPY": f"a numpy array; {_ARRAYS}",
    r"\x80[\x02-\x05][\x95}(c\]]": f"a pickle, which may run programs; {_ARRAYS}; of CIFAR take the binary version",
    r"ARROW1\0": f"an Arrow file; {_TABLE.format('read_feather(FILE)')}",
    r"SQLite format 3\0": f"an SQLite database; {_TABLE.format('read_sql(QUERY, sqlite3.connect(FILE))')}",
    r"MATLAB [0-9.]+ MAT-file": f"a MATLAB file; {_ARRAYS}, with scipy.io.loadmat",
    r"cifar-100?-(batches-bin|binary)/[^\0]{0,60}\0": "CIFAR's archive; unpack it, and give the folder in it",
    r"cifar-100?-(batches-py|python)/[^\0]{0,60}\0": "CIFAR in pickles; take the binary version of CIFAR's page",
    r"\x28\xb5\x2f\xfd": "compressed by zstd, which is not read; unpack it (zstd -d), or pack it by gzip",
    r"\s*\[\s*\{": f"a JSON array, not lines of JSON; {_TABLE.format('read_json(FILE)')}",
    r"[^\0]{1,100}\.(jpe?g|png|webp)\0.*\.cls\0|[^\0]{1,100}\.cls\0": f"a tar of WebDataset; {_PHOTOS}",
}
"""First bytes of files that are not read -> the format, and how to make a source of the file."""
_A_KIND: dict[Kind, str] = {
    "folder": "a folder",
    "file": "a file",
    "member": "part of an archive",
    "table": "a table of Spark",
}


@cache
def find_format(name: SourceFormat) -> Format:
    """Return the functions of the format ``name``."""
    if name in TABLE_FORMATS:
        return tables.FORMATS[name]
    source_format = import_module(f"deepspark_ops.ingest.sources.{name}").FORMAT
    assert isinstance(source_format, Format)
    return source_format


def detect_format(source: DataPath) -> SourceFormat:
    """Look at a source and return its format.

    Raises:
        ConfigError: The source does not exist, or has no known format.
    """
    require_source(source)
    look = Look(source)
    for start, foreign_format in _FOREIGN.items():
        if look.kind == "file" and re.match(start.encode(), look.start, re.DOTALL):
            msg = f"source={source} is {foreign_format}"
            raise ConfigError(msg)
    for name in SOURCE_FORMATS:
        if look.kind in find_format(name).kinds and find_format(name).looks_like(look):
            return name
    for name in SOURCE_FORMATS:
        if (finding := find_format(name).resembles(look)) is not None:
            msg = f"source={source} {finding}"
            raise ConfigError(msg)
    allowed = "\n".join(
        f"  {name}: {line}" for name, line in SOURCE_FORMATS.items() if look.kind in find_format(name).kinds
    )
    msg = f"source={source} is {_A_KIND[look.kind]} of no known format; as {_A_KIND[look.kind]} allowed:\n{allowed}"
    raise ConfigError(msg)


def require_source(source: DataPath, *, option: str = "source") -> None:
    """Refuse a source that does not exist.

    Raises:
        ConfigError: No such file or folder, or a name of another file system.
    """
    path, _ = split_member(source)
    try:
        if is_catalog_table(source) or path.exists():
            return
    except OSError as error:
        msg = f"{option}={source}: {error.strerror or error}"
        raise ConfigError(msg) from error
    match = _FILE_SYSTEM.search(str(source))
    if match is None:
        msg = f"{option}={source}: no such file or folder"
    else:
        url = f"{match['scheme']}://{match['rest']}"
        msg = (
            f"{option}={url} names the file system {match['scheme']}, which images are not read from; give a path"
            f" that driver and workers see: mount it, or copy the data first ({_COPY.get(match['scheme'], 'distcp')})"
        )
    raise ConfigError(msg)


def resolve_format(config: IngestConfig, source: DataPath) -> SourceFormat:
    """Return the configured format; for ``auto`` the detected format.

    Raises:
        ConfigError: As ``detect_format``; an option is set that only other formats take.
    """
    name = config.source_format
    if name == "auto":
        name = detect_format(source)
    else:
        require_source(source)
        kind = Look(source).kind
        if kind not in find_format(name).kinds:
            likely_format = _format_or_none(source)
            hint = f"; it looks like source_format={likely_format}" if likely_format else ""
            msg = f"source={source} is {_A_KIND[kind]}, which source_format={name} cannot be{hint}"
            raise ConfigError(msg)
    _refuse_unread(config, source, name)
    return name


def _refuse_unread(config: IngestConfig, source: DataPath, name: SourceFormat) -> None:
    """Refuse options that only other formats take: such an option would be ignored silently."""
    takers: dict[str, list[str]] = {}
    for other in SOURCE_FORMATS:
        for option in find_format(other).options:
            takers.setdefault(option, []).append(other)
    for option, formats in takers.items():
        value = getattr(config, option)
        if name not in formats and value != type(config).model_fields[option].default:
            users = ", ".join(formats)
            msg = f"{option}={value}: source={source} is of format {name}; the option is for {users}: leave it out"
            raise ConfigError(msg)


def _format_or_none(source: DataPath) -> SourceFormat | None:
    try:
        return detect_format(source)
    except (ConfigError, DataError):
        return None


def with_own_splits(config: IngestConfig) -> IngestConfig:
    """Return the config with the source of each split; a ``source`` without several splits stays unchanged.

    A configured test or validation source stays. A test source without a recognisable format, such as a root with one
    class, gets the format of the training source.

    Raises:
        ConfigError: As ``detect_format``.
        DataError: An archive is damaged.
    """
    name = resolve_format(config, config.source)
    sources = find_format(name).own_splits(config.source) or {"train": config.source}
    if len(sources) > 1 and (named := config.split_list or config.split_column):
        msg = (
            f"source={config.source} holds the sets {', '.join(sources)}; {named} would say what each record is of, so"
            f" give source={sources['train']}"
        )
        raise ConfigError(msg)
    test = config.test_source or sources.get("test")
    changed: dict[str, DataPath | str | None] = {
        "source": sources["train"],
        "test_source": test,
        "validation_source": config.validation_source or sources.get("validation"),
    }
    if config.source_format == "auto" and test is not None and split_member(test)[0].exists():
        changed["source_format"] = "auto" if _format_or_none(test) else name
    return config.model_copy(update=changed)


def digest_source(config: IngestConfig, source: DataPath, source_format: SourceFormat) -> str:
    """Return a digest that changes when the source's content does.

    Raises:
        ConfigError: A part of the source is missing.
        DataError: A part of the source cannot be read.
    """
    try:
        return find_format(source_format).digest(config, source)
    except OSError as error:
        msg = f"{error.filename or source}: {error.strerror or error}"
        raise DataError(msg) from error


def source_stamps(config: IngestConfig, source: DataPath) -> Iterator[bytes]:
    """Yield the name and the stamp of each file of a source, without reading records.

    A table of Spark's catalog has no files. A missing or damaged source has fewer stamps and no error.

    Raises:
        OSError: A store does not answer.
    """
    if is_catalog_table(source):
        return
    yield from path_stamps(split_member(source)[0], config.stamp)
    with suppress(ConfigError, DataError, FileNotFoundError):
        yield from find_format(resolve_format(config, source)).named_stamps(config, source)


def path_stamps(path: DataPath, by: FileStamp = "time") -> Iterator[bytes]:
    """Yield the name and ``file_stamp`` of a file, or of each file below a folder; also of objects in a store."""
    if isinstance(path, StorePath) and path.is_dir():
        for name, entry in sorted(objects_below(path).items()):
            stamp = f"{entry.stamp};".encode() if by == "time" else file_stamp(path / name, by)
            yield f"{path / name} ".encode() + stamp
        return
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for file in files:
        yield str(file).encode(errors="surrogateescape") + b" " + file_stamp(file, by)


def index_source(
    config: IngestConfig, source: DataPath, source_format: SourceFormat, work: DataPath, *, with_labels: bool = True
) -> SourceIndex:
    """Return the index of a source's records; ``work`` takes decompressed copies.

    Without ``with_labels`` a format may leave the labels unread.

    Raises:
        ConfigError: A part of the source is missing.
        DataError: A part of the source is damaged or empty.
    """
    file_format = find_format(source_format)
    read_index = file_format.index if with_labels else file_format.index_unlabelled or file_format.index
    try:
        return read_index(config, source, work)
    except OSError as error:
        msg = f"{error.filename or source}: {error.strerror or error}"
        raise DataError(msg) from error
