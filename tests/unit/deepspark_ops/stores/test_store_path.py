"""Paths in a store: text, entries, and the message of a missing entry."""

import copy
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from deepspark_ops.config.base import DataPathField, StageConfig, parse_config, with_paths_from
from deepspark_ops.stores.store_path import DataPath, StorePath, data_path, joined


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("s3://bucket/a/b.txt", "s3://bucket/a/b.txt"),
        ("s3://bucket/a//b/", "s3://bucket/a/b"),
        ("gs://bucket", "gs://bucket"),
        ("hdfs://host:8020/a", "hdfs://host:8020/a"),
        ("hdfs:///a/b", "hdfs:///a/b"),
        ("s3://b/a.tar::x/y.txt", "s3://b/a.tar::x/y.txt"),
    ],
)
def test_the_address_survives_what_paths_do(written, text):
    path = data_path(written)
    assert isinstance(path, StorePath)
    assert str(path) == text
    assert str(copy.copy(path)) == text  # by what pickle uses, when Spark sends tasks
    assert str(path / "c") == f"{text}/c"
    assert Path("/work") / path == path
    assert str((path / "c").with_name("d")) == f"{text}/d"
    assert (path / "c").parent == path
    assert path.absolute() == path.resolve() == path
    assert data_path(str(path)) == path


@pytest.mark.parametrize(
    "opened", [open, os.fspath, Path, os.path.join, os.stat, lambda path: Path("/work").joinpath(path)]
)
def test_no_function_of_the_file_system_takes_an_address(opened):
    """A subclass of Path would have them look for ``s3:/bucket/key`` on the disk."""
    with pytest.raises(TypeError, match="PathLike"):
        opened(data_path("s3://bucket/key"))


def test_a_field_cannot_take_an_address_for_a_local_path():
    config = type("Config", (StageConfig,), {"__annotations__": {"source": DataPath}})
    with pytest.raises(TypeError, match="DataPathField"):
        config.model_rebuild()


def test_what_is_no_store_is_local():
    assert type(data_path("a/b")) is type(Path("a/b"))
    assert data_path("file:///a/b") == Path("/a/b")
    assert data_path("file:/a/b") == Path("/a/b")
    assert not isinstance(data_path("https://host/a"), StorePath)


def test_names_of_a_list_may_be_addresses_themselves():
    assert str(joined(Path("/data"), "s3://b/x.jpg")) == "s3://b/x.jpg"
    assert str(joined(data_path("s3://b/photos"), "cat/1.jpg")) == "s3://b/photos/cat/1.jpg"
    assert joined(Path("/data"), "x.jpg") == Path("/data/x.jpg")


def test_options_keep_the_address_through_json_and_folders():
    class Config(StageConfig):
        source: DataPathField
        other: DataPathField | None = None

    config = with_paths_from(parse_config(Config, {"source": "s3://b/k", "other": "x"}), Path("/work"))
    assert str(config.source) == "s3://b/k"
    assert config.other == Path("/work/x")
    reread = Config.model_validate_json(config.model_dump_json())
    assert reread == Config(**config.model_dump()) == config
    assert config.model_dump() == {"source": data_path("s3://b/k"), "other": Path("/work/x")}
    assert isinstance(reread.source, StorePath)


def test_a_store_answers_as_a_folder_does(written):
    written("b/photos/cat/1.jpg", b"one")
    written("b/photos/cat/2.jpg", b"two!")
    written("b/photos/list.txt", b"cat/1.jpg 0\n")
    photos = data_path("s3://b/photos")
    assert photos.is_dir()
    assert not photos.is_file()
    assert (photos / "list.txt").is_file()
    assert not (photos / "none").exists()
    assert [path.name for path in photos.iterdir()] == ["cat", "list.txt"]
    assert [path.name for path in photos.glob("*.txt")] == ["list.txt"]
    assert list(photos.entries(is_deep=True)) == ["cat/1.jpg", "cat/2.jpg", "list.txt"]
    assert (photos / "cat/2.jpg").stat().st_size == 4
    assert (photos / "list.txt").read_text() == "cat/1.jpg 0\n"
    assert (photos / "./cat/../cat/1.jpg").read_bytes() == b"one"
    with (photos / "cat/2.jpg").open("rb") as stream:
        stream.seek(1)
        assert stream.read(2) == b"wo"


def test_a_missing_object_is_named_with_its_address(store):
    for ask in ("read_bytes", "stat", "version", "entries"):
        with pytest.raises(FileNotFoundError) as caught:
            getattr(data_path("s3://b/none"), ask)()
        assert caught.value.filename == "s3://b/none"
        assert caught.value.strerror == "no such object"


def test_the_written_object_is_the_same_for_every_name(store, tmp_path):
    """pyarrow would pack what a name ending in .gz is written to."""
    (store / "b").mkdir()
    (tmp_path / "x").write_bytes(b"content")
    for name in ("x.bin", "x.tar.gz", "x.bz2"):
        data_path(f"s3://b/{name}").put(tmp_path / "x")
        assert (store / "b" / name).read_bytes() == b"content"
    data_path("s3://b/x.bin").unlink()
    data_path("s3://b/x.bin").unlink()
    assert not (store / "b" / "x.bin").exists()


def test_an_address_is_one_value_in_dataclasses_sets_and_tasks():
    @dataclass(frozen=True)
    class Holder:
        path: DataPath

    path = data_path("s3://b/k")
    assert asdict(Holder(path)) == {"path": path}
    assert {path, data_path("s3://b//k/")} == {copy.deepcopy(path)} != {data_path("gs://b/k")}
    assert sorted([data_path("s3://b/k"), data_path("s3://b/a/z"), data_path("gs://b/z")], reverse=True)[0] == path
    with pytest.raises(AttributeError, match="does not change"):
        path.scheme = "gs"
