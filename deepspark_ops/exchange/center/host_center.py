"""The center that the workers of a host share in a tree of centers; the root is the center of the run's server."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.locks import is_locked, set_lock
from deepspark_ops.exchange.center.memory import CenterMemory, CenterShape, host_center_path, remove_stale_centers
from deepspark_ops.exchange.center.worker_counters import SESSION
from deepspark_ops.param_vector import Vector

_ROOT_BYTE = 1 << 41
"""Locked during an exchange with the root. A present worker w locks byte ``_ROOT_BYTE + 1 + w``."""


class HostCenter:
    """A host's center, its present workers, and the turn to exchange with the root.

    The file in shared memory has the center's initial values before the file gets its name. The kernel releases the
    locks of a killed process: the worker is gone, and another worker exchanges with the root. The last worker removes
    the file. A file that killed workers left behind is removed by the next start on the host, and the host begins
    anew at the root.

    Attributes:
        center: Mapped or private.
    """

    def __init__(self, center: Center, descriptor: int = -1, path: Path | None = None) -> None:
        """Take over a center; ``descriptor`` is the open file ``path``, -1 for private memory."""
        self.center = center
        self._descriptor = descriptor
        self._path = path
        self._entered: set[int] = set()  # workers of this process
        self._root_turn = threading.Lock()

    @classmethod
    def in_memory(cls, initial: Vector, shape: CenterShape) -> HostCenter:
        """Return a center in this process's own memory, a copy of ``initial`` (shape (n_params,))."""
        return cls(Center.in_memory(initial, shape))

    @classmethod
    def open(cls, folder: Path, shape: CenterShape, run_id: int, copy_root: Callable[[Vector], None]) -> HostCenter:
        """Map the center of this host; the first worker makes the file.

        Args:
            folder: Shared memory of the host.
            shape: Sizes of the center.
            run_id: The run.
            copy_root: Copies the root into a vector, (n_params,).

        Raises:
            ConfigError: No room, or another file has the name.
        """
        path = host_center_path(folder, run_id)
        remove_stale_centers(folder)
        initial: Vector | None = None
        while True:
            with suppress(FileNotFoundError):
                _check_owner(path)
                memory = CenterMemory.open(path)
                is_removed = not os.fstat(memory.handle).st_nlink  # by the last worker, before this process locked it
                if memory.shape == shape and not is_removed:
                    return cls(Center(memory), memory.handle, path)
                os.close(memory.handle)
                if is_removed:
                    continue
                msg = f"{path}: {memory.shape}, expected {shape}: no center of this run; remove it, or set center: flat"
                raise ConfigError(msg)
            if initial is None:
                initial = np.empty(shape.n_params, np.float32)
                copy_root(initial)
            memory = CenterMemory.create_in(folder, initial, shape, run_id=run_id)
            assert memory.path is not None, "a center in a folder is a file"
            try:
                path.hardlink_to(memory.path)
                return cls(Center(memory), memory.handle, path)
            except FileExistsError:  # another worker was faster
                os.close(memory.handle)
            finally:
                memory.path.unlink(missing_ok=True)

    def enter(self, worker: int, session: str) -> None:
        """Note a new process of ``worker`` as present."""
        self._entered.add(worker)
        self.center.abandon(worker)
        self.center.admit(worker, session)
        self.present_workers()

    def exit(self, worker: int) -> None:
        """Note that ``worker`` is gone."""
        self._entered.discard(worker)
        set_lock(self._descriptor, _ROOT_BYTE + 1 + worker, fcntl.F_UNLCK)
        self.present_workers()

    def present_workers(self) -> tuple[int, ...]:
        """Return the ids of the host's workers, ascending, and note their number in the center."""
        for worker in self._entered:  # an older process of the worker may have kept the lock until now
            set_lock(self._descriptor, _ROOT_BYTE + 1 + worker, fcntl.F_WRLCK)
        entered_ever = np.flatnonzero(self.center.counters[:, SESSION]).tolist()
        present = tuple(
            worker
            for worker in sorted({*entered_ever, *self._entered})
            if worker in self._entered or is_locked(self._descriptor, _ROOT_BYTE + 1 + worker)
        )
        self.center.note_live_workers(len(present))
        return present

    @contextmanager
    def root_turn(self) -> Iterator[bool]:
        """Yield whether this worker may exchange with the root now; False while another worker of the host does."""
        is_mine = self._root_turn.acquire(blocking=False)
        if is_mine and not set_lock(self._descriptor, _ROOT_BYTE, fcntl.F_WRLCK):
            self._root_turn.release()
            is_mine = False
        try:
            yield is_mine
        finally:
            if is_mine:
                set_lock(self._descriptor, _ROOT_BYTE, fcntl.F_UNLCK)
                self._root_turn.release()

    def close(self) -> None:
        """Release the mapping; the last process removes the file."""
        if self._path is not None:
            with suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._path.unlink(missing_ok=True)
        self.center.close()


def _check_owner(path: Path) -> None:
    """Refuse a file of another user: in shared memory any user may make any name.

    Raises:
        FileNotFoundError: No file.
        ConfigError: Another user's file, or no regular file.
    """
    status = path.lstat()
    if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
        msg = f"{path}: no regular file of user {os.geteuid()}; remove it, or set center: flat"
        raise ConfigError(msg)
