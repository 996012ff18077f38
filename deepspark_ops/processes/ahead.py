"""An iterator on a thread of its own: the next items are made while whoever asks for them works on the last one."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")
_WAIT_S = 0.5
"""How long either side waits at a time before it looks whether the other one has ended."""


@dataclass(frozen=True)
class _Failure:
    error: BaseException


class _End:
    """What comes after the last item."""


def ahead(items: Iterable[_Item], *, most: int = 2, name: str = "ahead") -> Generator[_Item, None, None]:
    """Yield ``items`` in their order; a thread takes them from the iterable, ``most`` ahead.

    The thread begins with the first item that is asked for, and has ended when the generator has: at the last item, at
    an error of the iterable, which comes out here as it is, or when the generator is closed. Only that thread touches
    the iterable, its end included, so that a generator's ``finally`` runs there, too.

    Args:
        items: Belongs to the thread from now on.
        most: Items that are held at most, beside the one being made and the one being used.
        name: Of the thread.

    Example:
        >>> list(ahead(iter([1, 2, 3]), most=1))
        [1, 2, 3]
    """
    maker = _Maker(items, most)
    thread = threading.Thread(target=maker.run, name=name, daemon=True)
    thread.start()
    try:
        while not isinstance(item := maker.next_item(thread), _End):
            if isinstance(item, _Failure):
                raise item.error
            yield item
    finally:
        maker.stop()
        thread.join()


def mapped_ahead(
    items: Iterable[_Item], make: Callable[[_Item], _Made], *, n_threads: int, name: str = "ahead"
) -> Generator[tuple[_Item, _Made], None, None]:
    """Yield each item with what ``make`` makes of it, in order; a thread takes the items, ``n_threads`` make.

    So the last thing made can be used, and the next item be read, while others are made. All threads have ended when
    the generator has. An error of ``make`` comes out where its item would, one of the iterable as soon as it is found.

    Args:
        items: Belongs to a thread from now on, as of ``ahead``.
        make: Called on several threads at once where ``n_threads`` is more than 1.
        n_threads: Items that are made at the same time; one more is held that is made already.
        name: Of the threads.

    Example:
        >>> list(mapped_ahead([1, 2, 3], lambda item: item * item, n_threads=2))
        [(1, 1), (2, 4), (3, 9)]
    """
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
    with closing(ahead(items, most=1, name=f"{name}-items")) as found:
        try:
            begun: deque[tuple[_Item, Future[_Made]]] = deque()
            while True:
                for item in islice(found, n_threads + 1 - len(begun)):
                    begun.append((item, pool.submit(make, item)))
                if not begun:
                    return
                item, future = begun.popleft()
                yield item, future.result()
        finally:
            pool.shutdown(cancel_futures=True)


class _Maker(Generic[_Item]):
    """The thread's side of ``ahead``."""

    def __init__(self, items: Iterable[_Item], most: int) -> None:
        self._items = items
        self._made: queue.Queue[_Item | _Failure | _End] = queue.Queue(most)
        self._is_over = threading.Event()

    def run(self) -> None:
        """Make items until there are no more, or nobody wants them."""
        iterator = iter(self._items)
        try:
            for item in iterator:
                if not self._put(item):
                    break
        except BaseException as error:  # noqa: BLE001 - raised again where the items are used
            self._put(_Failure(error))
        else:
            self._put(_End())
        finally:
            if isinstance(iterator, Generator):
                iterator.close()

    def stop(self) -> None:
        """Say that nobody wants more."""
        self._is_over.set()

    def next_item(self, thread: threading.Thread) -> _Item | _Failure | _End:
        """Return the next item; ``thread`` makes them."""
        while True:
            try:
                return self._made.get(timeout=_WAIT_S)
            except queue.Empty:
                if not thread.is_alive() and self._made.empty():
                    msg = f"thread {thread.name} has ended without a word"
                    raise RuntimeError(msg) from None

    def _put(self, item: _Item | _Failure | _End) -> bool:
        while not self._is_over.is_set():
            try:
                self._made.put(item, timeout=_WAIT_S)
            except queue.Full:
                continue
            return True
        return False
