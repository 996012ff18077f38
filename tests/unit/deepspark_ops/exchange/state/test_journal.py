from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from deepspark_ops.errors import DataError, ProtocolError, TrainingFailed
from deepspark_ops.exchange.state import journal as journal_module
from deepspark_ops.exchange.state.journal import Journal
from deepspark_ops.exchange.state.messages import Join, LeaseData, RequestGrant
from deepspark_ops.exchange.state.run_state import ExchangeState
from tests.unit.deepspark_ops.exchange.exchange_run import make_settings


class Disk:
    """Takes the place of ``os.write``: writes at most ``piece`` bytes a call, and ``room`` bytes in all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.piece = self.room = 1 << 40
        self._write = os.write
        monkeypatch.setattr(journal_module.os, "write", self)

    def __call__(self, handle: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        n_bytes = self._write(handle, data[: min(self.piece, self.room)])
        self.room -= n_bytes
        return n_bytes


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work" / "exchange.journal"


def fresh(path: Path) -> ExchangeState:
    return ExchangeState(make_settings(path.parents[1]))


def written(path: Path) -> ExchangeState:
    """Return the state of a journal with three messages."""
    journal, state = Journal(path), fresh(path)
    for message in (Join(0, "a"), RequestGrant(4).numbered(0, 1), LeaseData("train").numbered(0, 2)):
        journal.record(state, message, 5.0)
    journal.close()
    return state


def replayed_state(path: Path) -> ExchangeState:
    state = fresh(path)
    Journal(path).replay(state)
    return state


def test_a_journal_leads_to_the_state_that_it_was_written_from(path: Path) -> None:
    assert replayed_state(path).to_state() == fresh(path).to_state()
    state = written(path)
    assert state.to_state() != fresh(path).to_state()
    assert replayed_state(path).to_state() == state.to_state()


def test_a_line_that_the_system_takes_in_pieces_is_written_whole(path: Path, disk: Disk) -> None:
    disk.piece = 7
    assert written(path).to_state() == replayed_state(path).to_state()


def test_a_full_disk_leaves_no_torn_line_and_nothing_is_written_behind_it(path: Path, disk: Disk) -> None:
    state = written(path)
    old_state, old_bytes = state.to_state(), path.read_bytes()
    journal = Journal(path)
    journal.replay(replayed := fresh(path))
    disk.room = 10
    with pytest.raises(TrainingFailed) as failure:
        journal.record(replayed, Join(1, "b"), 6.0)
    assert str(failure.value) == (
        f"{path}: the exchange's journal cannot be written (No space left on device); free space on that disk or have"
        " TMPDIR name another one, and start the run again: it goes on from its last snapshot"
    )
    assert path.read_bytes() == old_bytes
    disk.room = 1 << 40
    with pytest.raises(TrainingFailed):
        journal.record(replayed, Join(1, "b"), 7.0)
    assert replayed.to_state() == old_state
    assert replayed_state(path).to_state() == old_state


def test_a_line_that_could_not_be_cut_off_is_the_last(path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, length: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    old_state = written(path).to_state()
    journal, state = Journal(path), fresh(path)
    journal.replay(state)
    disk.room = 10
    with monkeypatch.context() as broken:
        broken.setattr(journal_module.os, "ftruncate", refuse)
        for _ in range(2):
            with pytest.raises(TrainingFailed):
                journal.record(state, Join(1, "b"), 6.0)
            disk.room = 1 << 40
    assert not path.read_bytes().endswith(b"\n")
    assert replayed_state(path).to_state() == old_state
    assert path.read_bytes().endswith(b"\n"), "reading cuts the torn line off"


@pytest.mark.parametrize("n_bytes", [1, 10, 30])
def test_a_torn_last_line_is_dropped(path: Path, n_bytes: int) -> None:
    written(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:n_bytes])
    state = replayed_state(path)
    assert (state.grants.clock, state.answers[0][0]) == (4, 1)
    assert path.read_bytes() == b"".join(lines[:-1])


@pytest.mark.parametrize(
    "line",
    [
        b'{"at": 5.0, "call": "requ{"at": 5.0, "call": "leave", "worker": 0}',
        b'{"at": 5.0, "call": "leave"}',
        b'{"call": "leave", "worker": 0}',
        b'{"at": 5.0, "call": "dance", "worker": 0}',
        b"[]",
        b"\xff",
    ],
)
def test_a_damaged_line_in_the_middle_is_named(path: Path, line: bytes) -> None:
    written(path)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], lines[1], line, *lines[3:], b""]))
    with pytest.raises(DataError, match=r"exchange\.journal:3: not a line of an exchange journal of version 6 \("):
        replayed_state(path)


def test_a_journal_of_another_version_is_refused(path: Path) -> None:
    written(path)
    path.write_bytes(path.read_bytes().replace(b'"version": 6', b'"version": 5', 1))
    with pytest.raises(DataError, match=r"exchange\.journal:1: .*expected .*version.*6"):
        replayed_state(path)


def test_a_refused_message_is_not_in_the_file(path: Path) -> None:
    written(path)
    journal, state = Journal(path), fresh(path)
    journal.replay(state)
    old_bytes = path.read_bytes()
    with pytest.raises(ProtocolError, match='dataset "tests" is not part of this run; known: train'):
        journal.record(state, LeaseData("tests").numbered(0, 3), 6.0)
    assert path.read_bytes() == old_bytes


def test_a_full_disk_while_the_journal_is_shortened_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_state = written(path).to_state()
    old_bytes = path.read_bytes()
    journal, state = Journal(path), fresh(path)
    journal.replay(state)

    def no_room(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 10)
    monkeypatch.setattr(Path, "write_bytes", no_room)
    with pytest.raises(TrainingFailed, match="No space left on device"):
        journal.record(state, Join(1, "b"), 6.0)
    monkeypatch.undo()
    assert path.read_bytes() == old_bytes
    assert replayed_state(path).to_state() == old_state
    assert list(path.parent.iterdir()) == [path]


def test_a_journal_grows_to_some_times_a_large_state_before_the_next_state_replaces_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of ten thousand workers is longer than the shortest journal that is replaced."""
    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 100)
    journal, state = Journal(path), fresh(path)
    replaced_files: set[int] = set()
    for number in range(200):
        journal.record(state, RequestGrant(1, 0, [number]).numbered(0, number), 5.0)
        replaced_files.add(path.stat().st_ino)
        largest = journal_module.COMPACT_GROWTH * 2_000
        assert path.stat().st_size < largest
    assert 2 <= len(replaced_files) <= 20
    journal.close()
    assert replayed_state(path).grants.to_state() == state.grants.to_state()
