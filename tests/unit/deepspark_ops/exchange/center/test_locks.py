from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepspark_ops.errors import ExchangeUnavailable
from deepspark_ops.exchange.center.locks import CenterLocks


@pytest.fixture
def descriptors(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Two openings of a file, as by two processes."""
    path = tmp_path / "center"
    path.touch()
    opened = (os.open(path, os.O_RDWR), os.open(path, os.O_RDWR))
    yield opened
    for descriptor in opened:
        os.close(descriptor)


def test_two_openings_of_the_file_lock_each_other_out(descriptors: tuple[int, int]) -> None:
    mine, other = (CenterLocks("striped", 4, descriptor, 0.1) for descriptor in descriptors)
    with mine.chunk(2):
        with other.chunk(1):
            pass
        with pytest.raises(ExchangeUnavailable, match=r"waited 0.1 s for the lock of chunk 2 of the center"):
            other.chunk(2).__enter__()
    with other.chunk(2):
        pass


def test_threads_of_one_process_lock_each_other_out() -> None:
    locks = CenterLocks("full", 4, -1, 0.1)
    errors = []

    def enter() -> None:
        try:
            with locks.center():
                pass
        except ExchangeUnavailable as error:
            errors.append(error)

    with locks.center():
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join(30)
    assert len(errors) == 1
    enter()
    assert len(errors) == 1


def test_a_dead_process_holds_no_lock(descriptors: tuple[int, int]) -> None:
    # A separate opening of the file, as a worker's: an inherited opening would keep the lock in this process.
    path = os.readlink(f"/proc/self/fd/{descriptors[0]}")
    code = (
        "import os, sys; from deepspark_ops.exchange.center.locks import CenterLocks\n"
        "held = CenterLocks('striped', 4, os.open(sys.argv[1], os.O_RDWR), 1.0).chunk(0)\n"
        "held.__enter__(); print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"held\n"
    locks = CenterLocks("striped", 4, descriptors[0], 0.1)
    with pytest.raises(ExchangeUnavailable):
        locks.chunk(0).__enter__()
    child.kill()
    child.wait(30)
    with locks.chunk(0):
        pass
    child.stdout.close()
    child.stdin.close()


def test_without_locks_nothing_is_held() -> None:
    locks = CenterLocks("none", 4, -1, 0.1)
    with locks.center(), locks.center(), locks.chunk(0), locks.chunk(0):
        pass
