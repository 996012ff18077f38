"""The journal of a run's state: each message is written before its answer leaves the server."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from deepspark_ops.errors import DataError, ProtocolError, TrainingFailed
from deepspark_ops.exchange.scratch_file import write_scratch
from deepspark_ops.exchange.state.messages import Message, Restore, message_from_json
from deepspark_ops.exchange.state.run_state import ExchangeState

JOURNAL_VERSION = 6
COMPACT_BYTES = 4 << 20
"""A longer journal is replaced by its resulting state, at the least."""
COMPACT_GROWTH = 4
"""A journal grows to this many times the state that it began with, before the next state replaces it. The state of ten
thousand workers alone is longer than ``COMPACT_BYTES``: without the factor, each message would write the state."""

_HEAD = {"format": "exchange journal", "version": JOURNAL_VERSION}


class Journal:
    """Messages in a file, one JSON line each; the first line has the format's name and version.

    A killed server loses at most the line that was being written, and the line's message had no answer yet. The file is
    not synced and survives the process, not the host: after a loss of the host a run continues from its last snapshot.
    An incomplete line is cut off after a failed write, and no line follows. Not thread-safe.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or create the file.

        Raises:
            TrainingFailed: It cannot be written.
        """
        self._path = path
        self._failure: TrainingFailed | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = self._open()
            self._length = os.fstat(self._handle).st_size
        except OSError as error:
            raise self._failed(error) from error
        self._began_with = 0
        if not self._length:
            self._append(_line(_HEAD))

    def replay(self, state: ExchangeState) -> int:
        """Apply every message of the file to a fresh state, and return their number; cut off an incomplete last line.

        Raises:
            DataError: Another line cannot be read, or the file is of another version.
        """
        n_messages = 0
        n_bytes = 0
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    plain = json.loads(line)
                    if number > 1:
                        message_from_json(plain).apply(state, plain["at"])
                        n_messages += 1
                except (ValueError, LookupError, TypeError, ProtocolError) as error:
                    raise self._damaged(number, str(error)) from error
                if number == 1 and plain != _HEAD:
                    raise self._damaged(number, f"begins with {line[:60]!r}, expected {_line(_HEAD)!r}")
                n_bytes += len(line)
        self._cut(n_bytes)
        if not n_bytes:
            self._append(_line(_HEAD))
        return n_messages

    def record(self, state: ExchangeState, message: Message, now: float) -> Any:
        """Write and apply a message, and return its answer; remove a refused message from the file.

        Raises:
            TrainingFailed: The file cannot be written; neither file nor state has changed.
        """
        if self._length > max(COMPACT_BYTES, COMPACT_GROWTH * self._began_with):
            self._compact(state, now)
        length = self._length
        self._append(_line({"at": now, **message.to_json()}))
        try:
            return message.apply(state, now)
        except Exception:
            self._cut(length)
            raise

    def close(self) -> None:
        """Close the file, and keep the file."""
        os.close(self._handle)

    def _append(self, line: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        written = 0
        try:
            while written < len(line):
                written += os.write(self._handle, line[written:])
        except OSError as error:
            self._failure = self._failed(error)
            with suppress(OSError):  # nothing is written any more; ``replay`` cuts off an incomplete last line
                self._cut(self._length)
            raise self._failure from error
        self._length += len(line)

    def _cut(self, length: int) -> None:
        os.ftruncate(self._handle, length)
        self._length = length

    def _compact(self, state: ExchangeState, now: float) -> None:
        try:
            with write_scratch(self._path) as temporary:
                temporary.write_bytes(_line(_HEAD) + _line({"at": now, **Restore(state.to_state()).to_json()}))
            fresh = self._open()
        except OSError as error:
            self._failure = self._failed(error)
            raise self._failure from error
        os.close(self._handle)
        self._handle, self._length = fresh, os.fstat(fresh).st_size
        self._began_with = self._length

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _failed(self, error: OSError) -> TrainingFailed:
        return TrainingFailed(
            f"{self._path}: the exchange's journal cannot be written ({error.strerror}); free space on that disk or"
            " have TMPDIR name another one, and start the run again: it goes on from its last snapshot"
        )

    def _damaged(self, number: int, problem: str) -> DataError:
        return DataError(
            f"{self._path}:{number}: not a line of an exchange journal of version {JOURNAL_VERSION} ({problem}); start"
            " the run again: it goes on from its last snapshot"
        )


def _line(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain).encode() + b"\n"
