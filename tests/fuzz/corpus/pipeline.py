"""Readers of what the pipeline itself writes and sends: states, manifests, events, frames, messages, options."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from deepspark_ops.config.base import StageConfig, parse_config
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.commands.plan import PlanConfig
from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.config.commands.serve import ServeConfig
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.metrics import read_metrics
from deepspark_ops.evaluate.sample_scores import read_samples
from deepspark_ops.events import make_event, read_events
from deepspark_ops.exchange.state.journal import Journal
from deepspark_ops.exchange.state.messages import Join, LeaseData, RequestGrant
from deepspark_ops.exchange.state.pending_snapshot import ServerState
from deepspark_ops.exchange.state.run_state import ExchangeState
from deepspark_ops.exchange.transport.channel.base import Channel, PlainChannel
from deepspark_ops.exchange.transport.channel.handshake import MAGIC, VERSION, greet_client, greet_server
from deepspark_ops.exchange.transport.channel.mac import MacChannel
from deepspark_ops.exchange.transport.wire import ANSWER, CHUNK, HEADER, Connection, Frame
from deepspark_ops.export.manifest import parse_manifest
from deepspark_ops.run_view.event_tail import EventTail
from deepspark_ops.shards.manifest import read_manifest, read_root
from deepspark_ops.train.snapshots.state_file import (
    RunState,
    read_server_state,
    read_worker_state,
    write_run_state,
)
from deepspark_ops.train.snapshots.worker_state import WorkerState
from tests.fuzz.reader import OWN_ERRORS, Reader, file_reader
from tests.reference.bundles import make_bundle
from tests.reference.dataset_files import put_manifest_text
from tests.reference.evaluations import answers_with, evaluation, write_evaluation
from tests.reference.heap_texts import texts_in_the_heap
from tests.unit.deepspark_ops.exchange.exchange_run import make_settings

RUN = 0x5EED
_SECRET = bytes(32)
_KEY = bytes(range(32))


def _state(folder: Path) -> list[bytes]:
    path = folder / "state.h5"
    worker = WorkerState(np.arange(3, dtype="f4"), {"bn": np.ones(2, "f4")}, 4)
    run = RunState(10, 0, 3, 1, workers=(0,), leases={"train": {"epoch": 1}}, current_step=2)
    write_run_state(path, run, {0: worker})
    contents = [path.read_bytes()]
    write_run_state(path, run, {0: worker}, ServerState("easgd", np.ones(2, "u8"), np.ones((1, 3), "f4")))
    contents.append(path.read_bytes())
    return [*contents, texts_in_the_heap(path).read_bytes()]


def _read_state(path: Path) -> None:
    read_server_state(path)
    read_worker_state(path, 0)  # both read the rest first


_ROOT = '{"format_version": 1, "splits": {"train": {"file": "manifest-0.json", "sha256": "0"}}}'
_MANIFEST = {
    "format_version": 1,
    "split": "train",
    "splits": ["train", "test"],
    "shard_format": "lmdb",
    "encoded": False,
    "source": {"path": "a", "format": "idx", "sha256": "0" * 64},
    "recipe_sha256": "1" * 64,
    "sample_shape": [1, 4, 4],
    "n_samples": 3,
    "n_classes": 2,
    "class_names": ["a", "b"],
    "label_histogram": [1, 2],
    "mean_values": [0.5],
    "mean_file": {"file": "mean.binaryproto", "sha256": "2" * 64},
    "shards": [{"file": "s0", "sha256": "3" * 64, "n_samples": 3, "n_bytes": 9, "excluded": [[3, 4]]}],
    "n_rejected": 0,
    "n_bytes": 9,
    "warnings": {"grey": 1},
}


def _metrics(folder: Path) -> list[bytes]:
    labels = [0, 1, 1, 0, 1, 0]
    write_evaluation(folder, evaluation(answers_with(labels, range(1)), labels))
    return [(folder / "metrics.json").read_bytes()]


def _samples(folder: Path) -> list[bytes]:
    labels = [0, 1, 1, 0, 1, 0]
    path = write_evaluation(folder, evaluation(answers_with(labels, range(1)), labels)) / "samples.h5"
    content = path.read_bytes()
    return [content, texts_in_the_heap(path).read_bytes()]


def _bundles(folder: Path) -> list[bytes]:
    bundle = make_bundle(folder / "bundle", labels=("a", "b"))
    return [next(bundle.glob("*.json")).read_bytes()]


def _in_folder(read: Callable[[Path], object], name: str) -> Callable[[bytes, Path], object]:
    def run(content: bytes, folder: Path) -> object:
        (folder / name).write_bytes(content)
        return read(folder)

    return run


def _read_split(content: bytes, folder: Path) -> object:
    put_manifest_text(folder, "train", content)
    return read_manifest(folder / "train")


def _events(_: Path) -> list[bytes]:
    events = [make_event("loss", clock=k, worker=k % 2, loss=0.5, lr=0.1) for k in range(4)]
    return [b"".join(event.to_json().encode() + b"\n" for event in events)]


def _read_events(path: Path) -> None:
    list(read_events(path))
    EventTail(path).read_placed()


def _journal(folder: Path) -> list[bytes]:
    path = folder / "work" / "exchange.journal"
    journal, state = Journal(path), ExchangeState(make_settings(folder))
    for message in (Join(0, "a"), RequestGrant(4).numbered(0, 1), LeaseData("train").numbered(0, 2)):
        journal.record(state, message, 5.0)
    journal.close()
    return [path.read_bytes()]


def _read_journal(content: bytes, folder: Path) -> None:
    path = folder / "work" / "exchange.journal"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with closing(Journal(path)) as journal:
        journal.replay(ExchangeState(make_settings(folder)))


def _frames(_: Path) -> list[bytes]:
    text = json.dumps({"kind": "Join", "worker": 1}).encode()
    numbers = np.arange(4, dtype="f4").tobytes()
    return [
        Frame(ANSWER, count=len(text)).pack(RUN) + text,
        Frame(CHUNK, 1, 1, 2, 3, 4, 4).pack(RUN) + numbers,
        Frame(ANSWER, count=len(text)).pack(RUN) + text + Frame(CHUNK, 1, count=4).pack(RUN) + numbers,
    ]


def _mac_frames(_: Path) -> list[bytes]:
    return [_sent_with_mac(content) for content in _frames(Path())]


def _sent_with_mac(content: bytes) -> bytes:
    sender, receiver = socket.socketpair()
    with sender, receiver:
        channel, parts = MacChannel(sender, send_key=_KEY, receive_key=_KEY), [memoryview(content)]
        assert channel.send(parts) == len(content)
        return receiver.recv(1 << 16)


def _read_frames(content: bytes, folder: Path, *, has_mac: bool) -> None:
    del folder
    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.sendall(content[: 1 << 15])
        sender.shutdown(socket.SHUT_WR)
        connection = OnPair(
            MacChannel(receiver, send_key=_KEY, receive_key=_KEY) if has_mac else PlainChannel(receiver)
        )
        while (frame := connection.receive_frame()) is not None:
            if frame.operation == ANSWER:
                connection.receive_json(frame)
            else:
                connection.receive_into(memoryview(bytearray(frame.payload_bytes)))


class OnPair(Connection):
    """A connection over a pair of sockets, which has no options of TCP."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.run_id, self.peer, self.limit_bytes = channel, RUN, "peer", 1 << 16
        self._header = bytearray(HEADER.size)
        self.use_timeout(1.0)


def _greetings(_: Path) -> list[bytes]:
    return [struct.pack("<4sB3xQ32s", MAGIC, VERSION, RUN, bytes(32)) + b"\1" + bytes(32), bytes(64)]


def _greet(content: bytes, folder: Path) -> None:
    del folder
    for greet in (_as_server, _as_client):
        receiver, sender = socket.socketpair()
        with receiver, sender:
            sender.sendall(content[: 1 << 15])
            sender.shutdown(socket.SHUT_WR)
            greet(receiver)


def _as_server(sock: socket.socket) -> None:
    with suppress(*OWN_ERRORS):
        greet_client(sock, secret=_SECRET, run_id=RUN, peer="peer")
        msg = "a peer without the secret was let in"
        raise AssertionError(msg)


def _as_client(sock: socket.socket) -> None:
    with suppress(*OWN_ERRORS):
        greet_server(sock, secret=_SECRET, run_id=RUN, peer="peer", timeout_s=1.0)
        msg = "a server without the secret was believed"
        raise AssertionError(msg)


_OPTIONS: dict[type[StageConfig], dict[str, Any]] = {
    TrainConfig: {
        "solver": "s.prototxt",
        "run_dir": "r",
        "comm_period": "1@0 10@2000",
        "moving_rate": 0.4,
        "rate_scale": "auto",
        "weights": "a,b",
        "strategy_options": {"block_momentum": 0.5},
        "staging_size": "8GiB",
        "named_files": {"allowed_root": ["a"], "python_layers": "x.y"},
    },
    CheckConfig: {
        "solver": "s",
        "memory_limit": "8GiB",
        "ingest": {"source": "a", "resize_height": 4, "resize_width": 4},
    },
    IngestConfig: {"source": "a.txt", "output": "o", "test_fraction": 0.1, "feature_columns": "a,b", "limit": 5},
    ConvertConfig: {"net": "n", "weights": "w", "output": "o", "mean_values": "1,2,3", "formats": "caffe,onnx"},
    PlanConfig: {"solver": "s", "workers": "1,2,4", "step_ms": 3.5, "sample_shape": "3x32x32"},
    PredictConfig: {"bundle": "b", "input": "s3://a/b", "output": "o", "input_columns": "a=b,c=d"},
    EvaluateConfig: {"run_dir": "r", "slices": "a,b", "split": "test"},
    ExportConfig: {"run_dir": "r", "formats": "all"},
    PromoteConfig: {"model": "m", "min_accuracy": 0.5},
    ServeConfig: {"bundle": "b", "port": 8000},
}


def _options(_: Path) -> list[bytes]:
    contents = []
    for model, values in _OPTIONS.items():
        fields = {name: value for name, value in values.items() if name in model.model_fields}
        contents.append(json.dumps({"model": model.__name__, "values": fields}).encode())
    return contents


def _read_options(content: bytes, folder: Path) -> None:
    del folder
    try:
        plain = json.loads(content)
        model = {option_model.__name__: option_model for option_model in _OPTIONS}[plain["model"]]
        values = plain["values"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ConfigError(str(error)) from error  # not what is looked at here: Airflow and typer make the values
    if isinstance(values, dict):
        config = parse_config(model, values)
        if model.model_validate_json(config.model_dump_json()) != config:
            msg = "a config is another one after it was written and read"
            raise AssertionError(msg)


READERS: Sequence[Reader] = (
    Reader("state_h5", _state, file_reader(_read_state, "state.h5")),
    Reader("samples_h5", _samples, file_reader(read_samples, "samples.h5")),
    Reader("manifest", lambda _: [json.dumps(_MANIFEST).encode()], _read_split),
    Reader("dataset_root", lambda _: [_ROOT.encode()], _in_folder(read_root, "dataset.json")),
    Reader("metrics", _metrics, file_reader(read_metrics, "metrics.json")),
    Reader("bundle_manifest", _bundles, _in_folder(parse_manifest, "manifest.json")),
    Reader("events", _events, file_reader(_read_events, "events.jsonl")),
    Reader("journal", _journal, _read_journal),
    Reader("frames_mac", _mac_frames, partial(_read_frames, has_mac=True)),
    Reader(
        "frames",
        _frames,
        partial(_read_frames, has_mac=False),
        words=(MAGIC, struct.pack("<Q", RUN), b"\x01", b"\x02", b"\x05"),
    ),
    Reader("handshake", _greetings, _greet, words=(MAGIC, struct.pack("<Q", RUN))),
    Reader("options", _options, _read_options),
)
