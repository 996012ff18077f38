"""A worker's process on a host without the driver's folders, and its death in the middle of a transfer.

Loads no TensorFlow: a worker's process imports this module before its work.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from deepspark_ops.driver_files import driver_store
from deepspark_ops.train.data.sample_cache import SampleCache
from tests.integration.train.bare_hosts import hide


def hide_and(then: Callable[[], None] | None, executor: Path, *folders: Path) -> None:
    """Hide folders from this process, then call ``then``."""
    hide(executor, *folders)
    if then is not None:
        then()


def keep_no_samples() -> None:
    """Have this process read each sample from its shard, as a process whose dataset is larger than its memory."""
    SampleCache._fill = lambda *_: False


def kill_in_first_transfer(died: Path) -> None:
    """Have this process killed in the middle of its first shard, unless another process was killed before."""
    receive = driver_store._receive

    def receive_or_die(*arguments: Any, key: str, offset: int, room: memoryview) -> int:
        if key.endswith("data.mdb") and offset > 0:
            with suppress(FileExistsError):
                died.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return receive(*arguments, key=key, offset=offset, room=room)

    driver_store._receive = receive_or_die
