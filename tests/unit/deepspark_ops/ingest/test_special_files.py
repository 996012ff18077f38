"""A file of a source that is a named pipe, a device or a socket is refused at once, whatever the format."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from caffe_import.errors import CaffeImportError
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.source_formats import SOURCE_FORMATS, TABLE_FORMATS
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.ingest.files.file_batches import check_files, first_rows
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.ingest.sources.registry import find_format
from tests.reference.example_sources import EXAMPLE_SOURCES
from tests.reference.raw_sources import write_images
from tests.special_files import SPECIAL_KINDS, make_special

REFUSALS = (OSError, DeepSparkError, CaffeImportError, RecordError)
TIME_LIMIT_S = 120
FORMATS = [name for name in SOURCE_FORMATS if name != "spark_table"]
"""A table of Spark's catalog is no file."""
UNREAD = {"lock.mdb", "LOCK", "LOG", "LOG.old"}
"""Of LMDB and LevelDB: files that no reader opens."""


def own_source(name: str, folder: Path) -> Path:
    """Return an example source in ``folder``; a fixture is copied into the folder."""
    source = EXAMPLE_SOURCES[name](folder)
    if folder in (source, *source.parents):
        return source
    if source.is_dir():
        return Path(shutil.copytree(source, folder / source.name))
    return Path(shutil.copy(source, folder))


def read_all(name: str, source: Path, folder: Path) -> None:
    """Digest, index and read a source as ingestion does."""
    config, chosen = IngestConfig(source=source, output=folder / "out"), find_format(name)  # type: ignore[arg-type]
    chosen.digest(config, source)
    if name in TABLE_FORMATS:
        check_files(source, name)  # type: ignore[arg-type]
        first_rows(source, name, 5)  # type: ignore[arg-type]
        return
    index = chosen.index(config, source, folder)
    with index.reader.opened() as read:
        for position in range(len(index.labels)):
            read(position)


@contextmanager
def in_place_of(kind: str, path: Path) -> Iterator[None]:
    """Have a special file in the place of a file for as long as the block runs."""
    path.rename(hidden := path.with_name(f"{path.name}.hidden"))
    try:
        with make_special(kind, path):
            yield
    finally:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        hidden.rename(path)


@pytest.mark.timeout(TIME_LIMIT_S)
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
@pytest.mark.parametrize("name", FORMATS)
def test_each_file_of_each_format_is_refused_as_a_special_file(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "source").mkdir()
    source = own_source(name, tmp_path / "source")
    read_all(name, source, tmp_path)
    files = [path for path in (tmp_path / "source").rglob("*") if path.is_file() and path.name not in UNREAD]
    assert files
    for path in files:
        with in_place_of(kind, path), pytest.raises(REFUSALS):
            read_all(name, source, tmp_path)


@pytest.mark.timeout(TIME_LIMIT_S)
@pytest.mark.parametrize("kind", SPECIAL_KINDS)
def test_a_special_file_among_images_is_a_bad_record_that_names_its_kind(tmp_path: Path, kind: str) -> None:
    source = write_images(tmp_path / "raw", 3)
    image = source.parent / source.read_text().split()[0]
    config = IngestConfig(source=source, output=tmp_path / "out")
    with in_place_of(kind, image):
        index = find_format("image_list").index(config, source, tmp_path)
        with index.reader.opened() as read:
            with pytest.raises(RecordError, match=SPECIAL_KINDS[kind]):
                read(0)
            assert read(1)


@pytest.mark.timeout(TIME_LIMIT_S)
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_a_part_of_a_table_that_is_special_is_refused(tmp_path: Path, kind: str) -> None:
    for name in set(TABLE_FORMATS) & set(FORMATS):
        folder = tmp_path / name
        (folder / "part-0").mkdir(parents=True)
        first = EXAMPLE_SOURCES[name](folder / "part-0")
        with make_special(kind, first.parent / f"b{first.suffix}"), pytest.raises(OSError, match=SPECIAL_KINDS[kind]):
            find_format(name).digest(IngestConfig(source=folder, output=tmp_path / "out"), folder)


@pytest.mark.timeout(TIME_LIMIT_S)
def test_an_image_longer_than_any_image_is_a_bad_record(tmp_path: Path) -> None:
    source = write_images(tmp_path / "raw", 3)
    with (source.parent / source.read_text().split()[0]).open("r+b") as file:
        file.truncate(2**40)
    index = find_format("image_list").index(IngestConfig(source=source, output=tmp_path / "out"), source, tmp_path)
    with index.reader.opened() as read, pytest.raises(RecordError, match="more than 1,073,741,824 bytes"):
        read(0)
