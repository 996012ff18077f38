"""The run state that all threads of the server share: a lock, a journal, and the first failure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from deepspark_ops.errors import TrainingFailed
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.journal import Journal
from deepspark_ops.exchange.state.messages import Message
from deepspark_ops.exchange.state.run_state import ExchangeState

logger = logging.getLogger(__name__)


class SharedState:
    """A run's state. Every change is written to the journal first.

    Attributes:
        lock: Held around every read of ``state`` and every ``apply``, never while vectors move or files of vectors are
            written.
        state: The run's.
        failure: Why the run has failed; None while it has not.
        is_resumed: Whether the journal of an earlier server process was found.
    """

    def __init__(self, settings: ExchangeSettings, clock: Callable[[], float]) -> None:
        """Start a run, or continue the run of an existing journal.

        Raises:
            TrainingFailed: The journal cannot be written.
            DataError: The journal is damaged.
        """
        self.lock = threading.Lock()
        self.state = ExchangeState(settings)
        self.failure: str | None = None
        self._clock = clock
        self._journal = Journal(settings.journal())
        self.is_resumed = self._journal.replay(self.state) > 0

    def apply(self, message: Message) -> Any:
        """Write a message to the journal, apply the message, and return its answer. The caller holds ``lock``.

        Raises:
            TrainingFailed: The journal cannot be written; the run has failed.
            ProtocolError, ConfigError: The message is refused; nothing has changed.
        """
        try:
            return self._journal.record(self.state, message, self._clock())
        except TrainingFailed as error:
            self.fail(str(error))
            raise

    def record(self, message: Message) -> None:
        """Take the lock and ``apply`` a message."""
        with self.lock:
            self.apply(message)

    def fail(self, message: str) -> None:
        """Fail the run: the driver reads ``message`` by ``status``. Only the first message is kept."""
        if message != self.failure:
            logger.error("%s", message)
        self.failure = self.failure or message

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()
