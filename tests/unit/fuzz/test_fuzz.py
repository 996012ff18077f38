"""The fuzzer finds planted faults, reports each once with its numbers, and finds nothing in the project's readers."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import struct
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from caffe_import.errors import CaffeImportError, DataSourceError
from tests.fuzz import worker
from tests.fuzz.corpus.table import READERS
from tests.fuzz.hunt import hunt, made_corpus
from tests.fuzz.reader import Reader
from tests.fuzz.worker import content_of, one_input, run_inputs
from tests.paths import FIXTURES

SMALL_S = 3.0
RECORDED = sorted((FIXTURES / "fuzz").glob("*/*.bin"))


@pytest.fixture
def counted_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 20 ms pass at each look at the clock: the same inputs on a busy machine."""
    looks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: 0.02 * next(looks))


def planted(content: bytes, folder: Path) -> None:
    """Read one byte of a kind and three values, as a careless reader would."""
    if content[:1] != b"A":
        msg = f"{folder}: no kind A"
        raise DataSourceError(msg)
    struct.unpack("<H", content[1:3])


def kills(content: bytes, folder: Path) -> None:
    if len(content) < 4:
        os.kill(os.getpid(), signal.SIGSEGV)


def hangs(content: bytes, folder: Path) -> None:
    while len(content) < 4:
        pass


def hoards(content: bytes, folder: Path) -> None:
    if len(content) < 4:
        bytearray(4 * worker.MEMORY_BYTES)


def of(read: Any, **fields: Any) -> Reader:
    return Reader("planted", lambda folder: [b"A\1\0\0\0\0"], read, **fields)


@pytest.mark.parametrize(
    ("read", "kind", "detail"),
    [
        (planted, "exception", "error: unpack requires a buffer of 2 bytes"),
        (kills, "death", "SIGSEGV"),
        (hangs, "hang", "more than 0.05 s of CPU"),
        (hoards, "memory", "more than 1024 MiB"),
    ],
)
@pytest.mark.slow  # starts processes
@pytest.mark.usefixtures("counted_clock")
def test_each_kind_of_end_is_found_and_can_be_repeated(
    read: Any, kind: str, detail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "INPUT_S", 0.05)
    lines: list[str] = []
    assert hunt([of(read)], seconds=0.7, seed=7, folder=tmp_path, say=lines.append) == 1
    finding_line = next(line for line in lines if line.startswith("FINDING"))
    assert kind in finding_line
    assert detail in finding_line
    assert lines[0] == "fuzz: seed=7 seconds=0.7 readers=1"
    assert re.fullmatch(r"fuzz: inputs=[1-9]\d* findings=1", lines[-1])
    (input_path,) = tmp_path.glob("*.bin")
    finding = json.loads(input_path.with_suffix(".json").read_text())
    assert input_path.read_bytes() == content_of(of(read), [b"A\1\0\0\0\0"], finding["seed"], finding["number"])


@pytest.mark.usefixtures("counted_clock")
def test_the_projects_errors_are_no_finding(tmp_path: Path) -> None:
    def refuses(content: bytes, folder: Path) -> None:
        msg = "no"
        raise CaffeImportError(msg)

    batch = run_inputs(of(refuses), [b"abc"], seed=1, start=0, seconds=2.0)
    assert batch.findings == ()
    assert batch.n_refused == batch.n_inputs > 10


@pytest.mark.usefixtures("counted_clock")
def test_a_death_that_is_known_is_counted_and_the_next_input_read() -> None:
    batch = run_inputs(of(kills, may_die="it trusts its pages"), [b"A\1\0\0\0\0"], seed=1, start=0, seconds=2.0)
    assert (batch.findings, batch.n_deaths > 1) == ((), True)
    assert batch.n_inputs == batch.next_number


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_was_found_is_mended(path: Path, tmp_path: Path) -> None:
    assert isinstance(one_input(READERS[path.parent.name], path.read_bytes(), tmp_path), bool)


def test_every_reader_starts_from_files_that_it_reads() -> None:
    assert len(READERS) >= 30
    for reader in READERS.values():
        assert made_corpus(reader)


@pytest.mark.slow  # starts processes
def test_a_few_seconds_of_all_readers_find_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    n_findings = hunt(list(READERS.values()), seconds=SMALL_S, seed=20, folder=tmp_path, say=lines.append)
    assert n_findings == 0, "\n".join(lines)


@pytest.mark.slow  # starts processes
def test_a_stopped_hunt_prints_its_counts(tmp_path: Path) -> None:
    """Ctrl-C while a child reads: the child ends, and the hunt prints the earlier rounds."""
    lines: list[str] = []
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    old_content = children.read_text()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    try:
        exit_code = hunt([of(planted)], seconds=600, seed=1, folder=tmp_path, say=lines.append)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert exit_code == 0
    assert re.fullmatch(r"fuzz: stopped \d+ s before the end", lines[1])
    assert lines[-1].startswith("fuzz: inputs=")
    assert children.read_text() == old_content


def test_a_group_of_an_hdf5_model_that_is_no_text_is_no_blob(tmp_path: Path) -> None:
    from caffe_import.files.caffemodel import read_caffemodel

    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["data/conv/0"] = np.ones(2, "f4")
        file["data/conv"][b"\xff"] = np.ones(2, "f4")
    assert [len(blob) for blob in read_caffemodel(tmp_path / "m.h5")["conv"]] == [2]


def test_the_fuzzer_finds_a_server_that_admits_every_tls_client(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reader = READERS["handshake_tls"]
    stranger = next(content for content in made_corpus(reader) if content[0] == 2)
    assert one_input(reader, stranger, tmp_path) is False
    monkeypatch.setattr("deepspark_ops.exchange.transport.channel.handshake.hmac.compare_digest", lambda *_: True)
    finding = one_input(reader, stranger, tmp_path)
    assert isinstance(finding, dict)
    assert finding["detail"] == "AssertionError: a peer without the secret was let in, or believed"
