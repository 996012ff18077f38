"""Calls of a worker that knows the secret: to the exchange's server, by a host in a tree, and to the file server.

An input is lines. A line is the JSON of a call, or ``#`` and the fields of a frame with repeated payload bytes. So
damage reaches behind the headers of frames.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import shutil
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from deepspark_ops.driver_files.file_server import SharedFolders, _FileSession
from deepspark_ops.driver_files.uploads import Uploads
from deepspark_ops.events import make_event
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.host_center import HostCenter
from deepspark_ops.exchange.center.memory import CenterMemory, CenterShape, host_center_path
from deepspark_ops.exchange.server.coordinator import Coordinator
from deepspark_ops.exchange.server.process import ExchangeServer
from deepspark_ops.exchange.server.worker_session import WorkerSession
from deepspark_ops.exchange.state.grants import Schedule
from deepspark_ops.exchange.state.messages import LeaseData, RequestGrant, TakeSnapshot
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.channel.base import PlainChannel
from deepspark_ops.exchange.transport.listening.gate import ServerKeys
from deepspark_ops.exchange.transport.wire import Connection, Frame
from deepspark_ops.param_vector import Vector
from tests.fuzz.corpus.pipeline import RUN, OnPair
from tests.fuzz.reader import OWN_ERRORS, Reader
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings

_MOST_BYTES, _MOST_SENT_BYTES = 1 << 13, 1 << 16
"""Of lines and of frames: the frames and the answers fit into the pair of sockets."""
_FOLDER = "FOLDER"
"""In an input, in place of the reader's folder."""
_SECRET_TEXT, _DATA = b"of another user", b"of the dataset"
_SHAPE = CenterShape(50, 2, 1)


def _served(content: bytes, serve: Callable[[Connection], None]) -> tuple[bytes, Exception | None]:
    """Serve a connection with these lines; return the answers, and the error that ended the connection."""
    server, client = socket.socketpair()
    error = None
    with server, client:
        client.sendall(b"".join(map(_frame_of, content[:_MOST_BYTES].split(b"\n")))[:_MOST_SENT_BYTES])
        client.shutdown(socket.SHUT_WR)
        try:
            serve(OnPair(PlainChannel(server)))
        except OWN_ERRORS as refusal:
            error = refusal
        server.close()
        answers = b"".join(iter(lambda: client.recv(1 << 16), b""))
    return answers, error


def _frame_of(line: bytes) -> bytes:
    fields, _, payload = line[1:].partition(b"|")
    if not line.startswith(b"#"):
        return Frame(wire.CALL, count=len(line)).pack(RUN) + line
    try:
        frame = Frame(*map(int, fields.split()))
        header, n_bytes = frame.pack(RUN), min(frame.payload_bytes, _MOST_BYTES)
    except (ValueError, TypeError, KeyError, struct.error):
        return line
    return header + ((payload or b"\0") * n_bytes)[:n_bytes]


def _lines(*calls: Mapping[str, Any] | bytes) -> bytes:
    return b"\n".join(call if isinstance(call, bytes) else json.dumps(call).encode() for call in calls)


def _line_of(frame: Frame, payload: bytes = b"") -> bytes:
    return b"#" + " ".join(map(str, vars(frame).values())).encode() + b"|" + payload


@functools.cache
def _initial() -> Vector:
    return initial_vector(_SHAPE.n_params)


def _worker_calls(_: Path) -> list[bytes]:
    joined = {"call": "join", "worker": 0, "session": "a", "transport": "tree"}
    push = Frame(wire.PUSH, wire.FLOAT32, sequence=1, count=_SHAPE.n_params)
    exchange = (
        {"call": "pulled"},
        _line_of(Frame(wire.PULL, count=_SHAPE.n_params)),
        _line_of(Frame(wire.BEGIN, sequence=1)),
        _line_of(push, struct.pack("<f", 1.5)),
        _line_of(Frame(wire.END, sequence=1)),
    )
    state = {"call": "state", "iteration": 20, "meta": {}, "arrays": [["h", "<f4", [2]]], "bytes": 8}
    grants = (
        RequestGrant(4).numbered(0, 1).to_json(),
        LeaseData("train").numbered(0, 2).to_json(),
        RequestGrant(4, done=[1]).numbered(0, 3).to_json(),
        {**state, "iteration": 4},
        _line_of(Frame(wire.STATE, count=8)),
    )
    return [
        _lines(joined, {"call": "host", "token": "5a" * 16}, *exchange, {"call": "leave"}),
        _lines(joined, *grants),
        _lines(joined, {"call": "event", "line": make_event("note", clock=1, worker=0, text="a").to_json()}),
        _lines(joined, state, _line_of(Frame(wire.STATE, count=8)), {"call": "heartbeat"}),
        _lines({"call": "describe"}, {"call": "status"}, {"call": "control", "change": TakeSnapshot.call}),
    ]


def _serve_worker(content: bytes, folder: Path) -> None:
    """Be the exchange's server of a tree of centers; the center must stay finite."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    options = {"center": "tree"}
    fields = {"n_params": _SHAPE.n_params, "schedule": Schedule(40, snapshot=4), "exchange_timeout_s": 1.0}
    settings = make_settings(folder / "run", options=options, **fields)
    settings.work.mkdir(parents=True)
    center = Center.in_memory(_initial(), settings.center_shape())
    with socket.socket() as listener, closing(Coordinator(settings, center)) as coordinator:
        server = ExchangeServer(settings, ServerKeys(bytes(32)), center, listener, index=1)  # makes no threads
        server.index, server.coordinator = 0, coordinator
        _, error = _served(content, lambda connection: WorkerSession(server, connection, coordinator).run())
    if not np.isfinite(center.vector).all():
        msg = "a worker's push has spoiled the center"
        raise AssertionError(msg)
    if error is not None:
        raise error


def _file_calls(_: Path) -> list[bytes]:
    digest, output = hashlib.sha256(b"whole").hexdigest(), f"{_FOLDER}/run/outputs/o.h5"
    piece = {"path": output, "upload": "0" * 16, "offset": 0, "n_bytes": 5, "sha256": digest}
    final_line = _line_of(Frame(wire.CHUNK, count=5), b"whole")
    return [
        _lines({"call": "look", "path": f"{_FOLDER}/data/shard"}, {"call": "look", "path": f"{_FOLDER}/data"}),
        _lines({"call": "read", "path": f"{_FOLDER}/data/shard", "offset": 2}),
        _lines({"call": "list", "path": f"{_FOLDER}/data", "is_deep": True, "offset": 0}),
        _lines({"call": "write", **piece}, final_line, {"call": "look", "path": output}),
    ]


def _serve_files(content: bytes, folder: Path) -> None:
    """Be the driver's file server; nothing outside the run's folders is read or changed."""
    shutil.rmtree(folder, ignore_errors=True)
    output, untouched = folder / "run" / "outputs", {folder / "data" / "shard": _DATA, folder / "secret": _SECRET_TEXT}
    for path, text in untouched.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    uploads, shared = Uploads(), SharedFolders((folder / "data",), (output,))
    calls = content.replace(_FOLDER.encode(), str(folder).encode())
    answers, error = _served(calls, lambda connection: _FileSession(connection, shared, uploads).run())
    uploads.remove_unfinished()
    other_files = {
        path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and output not in path.parents
    }
    if _SECRET_TEXT in answers or other_files != untouched:
        msg = "a worker has read or changed a file outside the run's folders"
        raise AssertionError(msg)
    if error is not None:
        raise error


def _host_centers(folder: Path) -> list[bytes]:
    memory = CenterMemory.create_in(folder, _initial(), _SHAPE, run_id=RUN)
    assert memory.path is not None
    return [memory.path.read_bytes()]


def _open_host_center(content: bytes, folder: Path) -> None:
    """Be a worker that finds the center of its host; another worker holds the center."""
    path = host_center_path(folder, RUN)
    path.write_bytes(content)
    with path.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_SH)
        host = HostCenter.open(folder, _SHAPE, RUN, lambda vector: np.copyto(vector, _initial()))
        host.enter(1, "b")
        n_floats = len(host.center.vector)
        host.exit(1)
        host.close()
    if n_floats != _SHAPE.n_params:
        msg = f"a worker of {_SHAPE.n_params} floats has taken a center of {n_floats}"
        raise AssertionError(msg)


READERS = (
    Reader("worker_calls", _worker_calls, _serve_worker, words=(b'"call"', b'"token"', b"null", b"-1", b"1e999")),
    Reader(
        "file_calls", _file_calls, _serve_files, words=(b"FOLDER/secret", b"/../", b"\\ud800", b"\\u0000", b"9" * 20)
    ),
    Reader("host_center", _host_centers, _open_host_center, words=(b"DSCENTER", bytes(8), b"\xff" * 8)),
)
