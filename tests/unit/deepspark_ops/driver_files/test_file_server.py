"""The driver's file server over loopback, read by the store of workers: contents, refusals, broken connections."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepspark_ops.driver_files import driver_store, file_server, uploads
from deepspark_ops.driver_files.driver_store import DriverStore
from deepspark_ops.driver_files.file_server import FileServer, SharedFolders
from deepspark_ops.errors import ConfigError, DataError, ExchangeUnavailable, HandshakeFailed, ProtocolError
from deepspark_ops.exchange.transport.connection import ServerConnection
from deepspark_ops.ingest.files.image_files import visible_files
from deepspark_ops.stores.staging import Staging, stage, use_staging
from deepspark_ops.stores.store_path import on_driver, use_driver_store

CONTENT = os.urandom(100_001)
PIECE = 4_096


@pytest.fixture
def folders(tmp_path: Path) -> SharedFolders:
    data = tmp_path / "data"
    data.mkdir()
    (data / "shard").write_bytes(CONTENT)
    (data / "empty").touch()
    (tmp_path / "secret").write_text("secret")
    (data / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(data / "pipe")
    return SharedFolders((data,), (tmp_path / "run" / "outputs",))


@pytest.fixture(params=["off", "mac", "tls"])
def server(request: pytest.FixtureRequest, folders: SharedFolders) -> Iterator[FileServer]:
    yield from serving(folders, request.param)


@pytest.fixture
def plain_server(folders: SharedFolders, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    for module in (file_server, driver_store):
        monkeypatch.setattr(module, "PIECE_BYTES", PIECE)
    yield from serving(folders, "off")


def serving(folders: SharedFolders, protection: str) -> Iterator[FileServer]:
    running = FileServer(folders, "127.0.0.1", 0, protection=protection, timeout_s=60.0)  # type: ignore[arg-type]
    use_driver_store(DriverStore(running.address))
    yield running
    running.stop()
    use_driver_store(None)


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_files_are_read_and_written_under_every_protection(server: FileServer, tmp_path: Path) -> None:
    shard = on_driver(tmp_path / "data" / "shard")
    (tmp_path / "copy").touch()
    shard.fetch(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    assert shard.read_bytes() == CONTENT
    with shard.open("rb") as stream:
        stream.seek(-5, os.SEEK_END)
        assert stream.read() == CONTENT[-5:]
    assert (shard.is_file(), shard.is_dir(), shard.stat().st_size) == (True, False, len(CONTENT))
    assert (shard.parent.is_dir(), on_driver(tmp_path / "data" / "none" / "x").exists()) == (True, False)
    assert on_driver(tmp_path / "data" / "empty").read_bytes() == b""
    output = on_driver(tmp_path / "run" / "outputs") / "train" / "o.h5"
    for source in ("copy", "data/empty"):
        output.put(tmp_path / source)
        assert (tmp_path / "run/outputs/train/o.h5").read_bytes() == (tmp_path / source).read_bytes()
    assert [path.name for path in (tmp_path / "run" / "outputs").rglob("*")] == ["train", "o.h5"]


def test_a_worker_with_another_secret_or_another_certificate_is_refused(server: FileServer, tmp_path: Path) -> None:
    stranger = DriverStore(replace(server.address, secret=bytes(32)))
    with pytest.raises(HandshakeFailed, match=r"the driver's file server .* refused this process"):
        stranger.entry(str(tmp_path / "data" / "shard"))
    if server.address.protection == "tls":
        relay = DriverStore(replace(server.address, certificate=bytes(32)))
        with pytest.raises(Exception, match="another certificate than the run's"):
            relay.entry(str(tmp_path / "data" / "shard"))


def test_folders_are_listed_in_pieces_as_a_walk_of_the_disk_finds_them(
    plain_server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_server, "PIECE_BYTES", 64)
    pictures = tmp_path / "data" / "pictures"
    for name in ("b.png", "a/1.png", "a-b/1.png", "a/deep/2.png", "a/.hidden/3.png", "gr\udcfcn.png", "notes.txt"):
        (pictures / name).parent.mkdir(parents=True, exist_ok=True)
        (pictures / name).write_bytes(name.encode(errors="surrogateescape"))
    (pictures / "linked").symlink_to(pictures / "a")
    (pictures / "a" / "loop").symlink_to(pictures)
    (pictures / "a" / "gone.png").symlink_to(tmp_path / "nowhere")
    remote = on_driver(pictures)
    names = list(visible_files(pictures))
    assert len(names) == 12
    assert list(visible_files(remote)) == names
    assert list(remote.entries()) == sorted(path.name for path in pictures.iterdir())
    assert [path.name for path in remote.iterdir() if path.is_dir()] == ["a", "a-b", "linked"]
    assert remote.entries(is_deep=True)["a/1.png"].n_bytes == 7
    use_staging(Staging(tmp_path / "copies"))
    held = stage(remote / "a-b")
    assert [path.read_bytes() for path in held.folder.rglob("*.png")] == [b"a-b/1.png"]
    held.release()
    with pytest.raises(NotADirectoryError):
        (remote / "b.png").entries()
    with pytest.raises(PermissionError, match="reads for workers only in"):
        on_driver(tmp_path).entries()


@pytest.mark.parametrize("name", ["secret", "data/../secret", "data/link", "", "data/../../etc/passwd"])
def test_a_path_outside_of_the_shared_folders_is_refused(plain_server: FileServer, tmp_path: Path, name: str) -> None:
    store = DriverStore(plain_server.address)
    (tmp_path / "source").write_bytes(b"x")
    for key in (f"{tmp_path}/{name}", name):
        with pytest.raises(PermissionError, match=r"the driver reads for workers only in .*data"):
            store.entry(key)
        with pytest.raises(PermissionError, match=r"the driver reads for workers only in .*data"):
            store.read(key, 0)
        with pytest.raises(PermissionError, match=r"the driver writes for workers only in .*outputs"):
            store.put(tmp_path / "source", key)
    assert (tmp_path / "secret").read_text() == "secret"


def test_only_outputs_are_written_and_only_regular_files_are_read(plain_server: FileServer, tmp_path: Path) -> None:
    store = DriverStore(plain_server.address)
    (tmp_path / "source").write_bytes(b"x")
    with pytest.raises(PermissionError, match="writes for workers only in"):
        store.put(tmp_path / "source", str(tmp_path / "data" / "shard"))
    with pytest.raises(IsADirectoryError):
        store.put(tmp_path / "source", str(tmp_path / "run" / "outputs"))
    with pytest.raises(OSError, match="a named pipe; only regular files are read"):
        store.read(str(tmp_path / "data" / "pipe"), 0)
    with pytest.raises(FileNotFoundError, match="the driver's disk"):
        store.read(str(tmp_path / "data" / "none"), 0)
    with pytest.raises(OSError, match="workers remove no file of the driver"):
        on_driver(tmp_path / "data" / "shard").unlink()
    assert (tmp_path / "data" / "shard").read_bytes() == CONTENT


def test_a_transfer_goes_on_from_its_last_piece_after_a_broken_connection(
    plain_server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets: list[int] = []
    read = file_server._FileSession._read

    def read_or_break(session: file_server._FileSession, request: dict[str, int]) -> None:
        offsets.append(request["offset"])
        if len(offsets) in (3, 7):
            session._connection.close()
        read(session, request)

    monkeypatch.setattr(file_server._FileSession, "_read", read_or_break)
    copies = Staging(tmp_path / "copies", 10**6)
    key = digest_of(CONTENT)
    held = copies.files(key, {"s": on_driver(tmp_path / "data" / "shard")}, {"s": key})
    assert (held.folder / "s").read_bytes() == CONTENT
    pieces = [*range(0, len(CONTENT), PIECE), len(CONTENT)]
    assert sorted(offsets) == sorted([*pieces, pieces[2], pieces[5]]), "each broken piece twice, all others once"
    held.release()


def test_a_copy_with_another_digest_is_refused_and_removed(plain_server: FileServer, tmp_path: Path) -> None:
    copies = Staging(tmp_path / "copies", 10**6)
    key = digest_of(b"other")
    with pytest.raises(DataError, match=rf"driver://{tmp_path}/data/shard: SHA-256 is .*manifest says {key[:12]}"):
        copies.files(key, {"s": on_driver(tmp_path / "data" / "shard")}, {"s": key})
    assert not copies.has(key)
    assert [path for path in (tmp_path / "copies").rglob("*") if path.is_file() and path.stat().st_size] == []


def test_a_sent_file_with_another_digest_is_refused_and_removed(
    plain_server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").write_bytes(CONTENT)
    wrong = SimpleNamespace(file_digest=lambda *_: SimpleNamespace(hexdigest=lambda: digest_of(b"other")))
    monkeypatch.setattr(driver_store, "hashlib", wrong)
    with pytest.raises(OSError, match="SHA-256 of the received bytes is"):
        (on_driver(tmp_path / "run" / "outputs") / "o.h5").put(tmp_path / "source")
    assert list((tmp_path / "run" / "outputs").iterdir()) == []


def test_a_worker_that_dies_while_it_sends_leaves_no_half_file(
    plain_server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").write_bytes(CONTENT)
    outputs = tmp_path / "run" / "outputs"
    sent: list[object] = []
    send = driver_store._send

    def send_or_die(*arguments: object, **fields: object) -> None:
        sent.append(fields)
        if len(sent) > 3:
            raise KeyboardInterrupt
        send(*arguments, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(driver_store, "_send", send_or_die)
    with pytest.raises(KeyboardInterrupt):
        (on_driver(outputs) / "o.h5").put(tmp_path / "source")
    (half,) = outputs.iterdir()
    assert half.name.startswith(".o.h5.")
    plain_server.stop()
    assert list(outputs.iterdir()) == []


def test_a_full_disk_is_one_message_on_both_sides(
    plain_server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "source").write_bytes(CONTENT)
    monkeypatch.setattr(uploads.os, "pwrite", no_room)  # type: ignore[attr-defined]
    with pytest.raises(OSError, match=r"No space left on device \(the driver's disk\)"):
        (on_driver(tmp_path / "run" / "outputs") / "o.h5").put(tmp_path / "source")
    copies = Staging(tmp_path / "copies", 10**6)
    with pytest.raises(ConfigError, match=r"staging_folder=.*copies: the disk is full, 100,001 bytes are needed"):
        copies.files("key", {"s": on_driver(tmp_path / "data" / "shard")})
    assert not copies.has("key")


def test_a_file_that_the_drivers_disk_has_no_room_for_is_refused_at_its_first_piece(
    plain_server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").write_bytes(CONTENT)
    monkeypatch.setattr(uploads.shutil, "disk_usage", lambda _: SimpleNamespace(free=len(CONTENT) - 1))  # type: ignore[attr-defined]
    with pytest.raises(OSError, match=r"100,001 bytes do not fit into the free 100,000 \(the driver's disk\)"):
        (on_driver(tmp_path / "run" / "outputs") / "o.h5").put(tmp_path / "source")
    assert list((tmp_path / "run" / "outputs").iterdir()) == []


def test_a_driver_that_is_gone_is_named(plain_server: FileServer, tmp_path: Path) -> None:
    plain_server.stop()
    gone = DriverStore(replace(plain_server.address, exchange_timeout_s=0.3))
    with pytest.raises(ExchangeUnavailable, match=r"no answer from the driver's file server 127.0.0.1:\d+ after"):
        gone.entry(str(tmp_path / "data" / "shard"))


def test_a_server_that_is_out_of_descriptors_for_a_moment_says_so_and_goes_on(
    plain_server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))]
    accept = socket.socket.accept

    def accept_or_fail(sock: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return accept(sock)

    monkeypatch.setattr(socket.socket, "accept", accept_or_fail)
    store = DriverStore(plain_server.address)
    for _ in range(2):  # the server waits for the first connection already
        assert store.entry(str(tmp_path / "data" / "empty")) is not None
    assert failures == []
    assert [record.levelname for record in caplog.records if "Too many open files" in record.message] == ["WARNING"]


@pytest.mark.parametrize(
    "fields",
    [{"path": "/a\0b"}, {"path": "/\ud800"}, {"path": 5}, {"offset": 2**63}, {"offset": -1}, {"call": ["read"]}],
)
def test_a_senseless_call_is_one_refusal(plain_server: FileServer, tmp_path: Path, fields: dict[str, object]) -> None:
    connection = ServerConnection(plain_server.address, "worker 0")
    request = {"call": "read", "path": str(tmp_path / "data" / "shard"), "offset": 0}
    with pytest.raises(ProtocolError, match=r"file server: |read: "):
        connection.call(request | fields)
    assert connection.call({**request, "call": "look"})["entry"]["n_bytes"] == len(CONTENT)
    connection.close()


def test_a_port_in_use_is_a_mistake_with_a_remedy(plain_server: FileServer, folders: SharedFolders) -> None:
    with pytest.raises(
        ConfigError, match=r"file server cannot use port \d+: Address already in use.*another listen_port"
    ):
        FileServer(folders, "127.0.0.1", plain_server.address.port, protection="off", timeout_s=1.0)


def test_without_a_driver_a_process_reads_nothing_of_its_disk(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no connection to the driver's files"):
        on_driver(tmp_path).exists()
