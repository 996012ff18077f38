"""Copies on the local disk: fetched once, checked, bounded, never taken away from who reads them."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.stores import staging
from deepspark_ops.stores.staging import NoRoomNow, Staging, local_copy
from deepspark_ops.stores.store_path import StorePath, data_path
from deepspark_ops.stores.writing import local_output
from tests.paths import ROOT


@pytest.fixture
def fetched(monkeypatch):
    """Return the list of what was fetched."""
    fetched_paths = []
    fetch = StorePath.fetch
    monkeypatch.setattr(StorePath, "fetch", lambda path, target: (fetched_paths.append(str(path)), fetch(path, target)))
    return fetched_paths


def test_an_object_is_fetched_once_and_again_when_it_changes(written, fetched):
    written("b/a.bin", b"first")
    path = data_path("s3://b/a.bin")
    for _ in range(2):
        with local_copy(path) as local:
            assert local.name == "a.bin"
            assert local.read_bytes() == b"first"
    assert fetched == ["s3://b/a.bin"]
    os.utime(written("b/a.bin", b"other"), ns=(1, 1))
    with local_copy(path) as local:
        assert local.read_bytes() == b"other"
    assert len(fetched) == 2


def test_a_folder_is_copied_whole_and_a_local_path_is_itself(written, tmp_path):
    written("b/db/CURRENT", b"x")
    written("b/db/deep/1.ldb", b"y")
    with local_copy(data_path("s3://b/db")) as local:
        assert (local / "CURRENT").read_bytes() == b"x"
        assert (local / "deep/1.ldb").read_bytes() == b"y"
    with local_copy(tmp_path) as local:
        assert local is tmp_path


def test_the_least_recently_used_copy_goes_and_copies_in_use_stay(written, tmp_path):
    stage = Staging(tmp_path / "staging", n_bytes=250)
    paths = {name: data_path(f"s3://b/{name}") for name in "abcd"}
    for name in paths:
        written(f"b/{name}", name.encode() * 100)
    held = stage.files("a", {"a": paths["a"]})
    stage.files("b", {"b": paths["b"]}).release()
    stage.files("c", {"c": paths["c"]}).release()  # b makes room: a is older, and in use
    assert (stage.has("a"), stage.has("b"), stage.has("c")) == (True, False, True)
    staged_again = stage.files("c", {"c": paths["c"]})
    with pytest.raises(ConfigError, match=r"staging_size=250 bytes .* but for 50, 100 more are needed; raise it"):
        stage.files("d", {"d": paths["d"]})
    held.release()
    stage.files("d", {"d": paths["d"]}).release()
    assert (stage.has("a"), stage.has("c"), stage.has("d")) == (False, True, True)
    assert (staged_again.folder / "c").read_bytes() == b"c" * 100
    with pytest.raises(ConfigError, match="cannot hold 300 that are needed at once"):
        stage.files("all", {name: paths[name] for name in "abc"})


def test_copies_go_when_the_disk_has_less_room_than_staging_size(written, tmp_path, monkeypatch):
    stage = Staging(tmp_path / "staging", n_bytes=10**6)
    paths = {name: data_path(f"s3://b/{name}") for name in "abc"}
    for name in paths:
        written(f"b/{name}", name.encode() * 100)
        stage.files(name, {name: paths[name]}).release() if name != "c" else None
    held = stage.files("b", {"b": paths["b"]})
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda _: SimpleNamespace(free=30))
    stage.files("c", {"c": paths["c"]}).release()
    assert (stage.has("a"), stage.has("b"), stage.has("c")) == (False, True, True)
    staged_again = stage.files("c", {"c": paths["c"]})
    with pytest.raises(
        NoRoomNow, match=r"staging_folder=.*staging: the disk is full, 100 bytes are needed, 30 are free"
    ):
        stage.files("a", {"a": paths["a"]})
    for copies in (held, staged_again):
        copies.release()


def test_the_room_counts_what_is_left_of_a_process_that_was_killed(written, tmp_path):
    stage = Staging(tmp_path / "staging", n_bytes=150)
    written("b/a", b"a" * 100)
    (tmp_path / "staging" / ".old.tmp").mkdir(parents=True)
    (tmp_path / "staging" / ".old.tmp" / "x").write_bytes(b"x" * 100)
    stage.files("a", {"a": data_path("s3://b/a")}).release()
    assert not (tmp_path / "staging" / ".old.tmp").exists()


def test_a_damaged_object_is_refused_and_not_kept(written, tmp_path):
    stage = Staging(tmp_path / "staging")
    written("b/a", b"damaged")
    digests = {"a": hashlib.sha256(b"as it was").hexdigest()}
    with pytest.raises(DataError, match=r"s3://b/a: SHA-256 is .*, the manifest says"):
        stage.files("a", {"a": data_path("s3://b/a")}, digests)
    assert not stage.has("a")
    assert not list((tmp_path / "staging").glob(".*"))


def test_threads_that_want_the_same_fetch_it_once(written, fetched):
    written("b/a", b"x" * 1000)
    results = []

    def read():
        with local_copy(data_path("s3://b/a")) as local:
            results.append(local.read_bytes())

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [b"x" * 1000] * 8
    assert fetched == ["s3://b/a"]


_HOLDS = """
import sys
from pathlib import Path
from deepspark_ops.stores.staging import Staging
held = Staging(Path(sys.argv[1]), 150).files("a", {})
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_keeps_its_copy_until_it_ends(written, tmp_path):
    folder = tmp_path / "staging"
    stage = Staging(folder, n_bytes=150)
    written("b/a", b"a" * 100)
    written("b/b", b"b" * 100)
    stage.files("a", {"a": data_path("s3://b/a")}).release()
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match="are in use"):
            stage.files("b", {"b": data_path("s3://b/b")})
        other.kill()
    stage.files("b", {"b": data_path("s3://b/b")}).release()
    assert not stage.has("a")


def test_a_folder_of_somebody_else_is_refused(tmp_path, monkeypatch, written):
    written("b/a", b"a")
    (tmp_path / "theirs").mkdir()
    uid = os.getuid()
    monkeypatch.setattr(staging.os, "getuid", lambda: uid + 1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        Staging(Path(tmp_path / "theirs")).files("a", {"a": data_path("s3://b/a")})


KILLED = """
import os, signal, sys
from pathlib import Path
from deepspark_ops.stores.staging import Staging, use_staging
from deepspark_ops.stores.store_path import data_path
from deepspark_ops.stores.writing import local_output
use_staging(Staging(Path(sys.argv[1])))
with local_output(data_path("s3://b/killed.bin")) as path:
    path.write_bytes(b"x" * 1000)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_was_writing_for_a_store_goes_with_the_next_output(written, tmp_path):
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "staging")]
    assert subprocess.run(command, env=environment, check=False, timeout=60).returncode == -signal.SIGKILL
    assert len(list(tmp_path.rglob("killed.bin"))) == 1
    with local_output(data_path("s3://b/first.bin")) as path:
        path.write_bytes(b"first")
        with local_output(data_path("s3://b/second.bin")) as other:
            other.write_bytes(b"second")
        assert path.read_bytes() == b"first"  # the folder of a process at work stays
    assert not list(tmp_path.rglob("killed.bin"))
    assert (data_path("s3://b/first.bin").read_bytes(), data_path("s3://b/second.bin").read_bytes()) == (
        b"first",
        b"second",
    )
