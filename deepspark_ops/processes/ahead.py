"""An iterator on a separate thread: prefetches items while the caller processes the last item."""

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
_Result = TypeVar("_Result")
_WAIT_S = 0.5
"""Wait of either side before it checks whether the other side has ended."""


@dataclass(frozen=True)
class _Failure:
    error: BaseException


class _End:
    """Marker after the last item."""


def ahead(items: Iterable[_Item], *, most: int = 2, name: str = "ahead") -> Generator[_Item, None, None]:
    """Yield ``items`` in order; a thread prefetches up to ``most`` items.

    The thread starts with the first request, and ends before the generator. The generator ends at the last item, at an
    error of the iterable, or at ``close``. An error of the iterable is raised unchanged. Only the thread touches the
    iterable, also at the end, so a generator's ``finally`` runs in the thread.

    Args:
        items: Iterable; only the thread may use it from now on.
        most: Most prefetched items, besides the item in production and the item in use.
        name: Name of the thread.

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
    items: Iterable[_Item], make: Callable[[_Item], _Result], *, n_threads: int, name: str = "ahead"
) -> Generator[tuple[_Item, _Result], None, None]:
    """Yield each item with the result of ``make``, in order.

    A single thread takes items, ``n_threads`` threads call ``make``. So the last result is used, and the next item is
    read, while other results are computed. All threads have ended when the generator has ended. An error of ``make`` is
    raised in place of the result; an error of the iterable is raised at once.

    Args:
        items: Iterable; only one thread may use it from now on, as in ``ahead``.
        make: Function of an item; called on several threads at once if ``n_threads`` is more than 1.
        n_threads: Number of parallel calls; one further result is held.
        name: Name of the threads.

    Example:
        >>> list(mapped_ahead([1, 2, 3], lambda item: item * item, n_threads=2))
        [(1, 1), (2, 4), (3, 9)]
    """
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
    with closing(ahead(items, most=1, name=f"{name}-items")) as prefetched:
        try:
            begun: deque[tuple[_Item, Future[_Result]]] = deque()
            while True:
                for item in islice(prefetched, n_threads + 1 - len(begun)):
                    begun.append((item, pool.submit(make, item)))
                if not begun:
                    return
                item, future = begun.popleft()
                yield item, future.result()
        finally:
            pool.shutdown(cancel_futures=True)


class _Maker(Generic[_Item]):
    """Producer thread of ``ahead``."""

    def __init__(self, items: Iterable[_Item], most: int) -> None:
        self._items = items
        self._queue: queue.Queue[_Item | _Failure | _End] = queue.Queue(most)
        self._is_over = threading.Event()

    def run(self) -> None:
        """Produce items until the iterable or the consumer ends."""
        iterator = iter(self._items)
        try:
            for item in iterator:
                if not self._put(item):
                    break
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer
            self._put(_Failure(error))
        else:
            self._put(_End())
        finally:
            if isinstance(iterator, Generator):
                iterator.close()

    def stop(self) -> None:
        """Tell the producer about the end of the consumer."""
        self._is_over.set()

    def next_item(self, thread: threading.Thread) -> _Item | _Failure | _End:
        """Return the next item of the producer ``thread``."""
        while True:
            try:
                return self._queue.get(timeout=_WAIT_S)
            except queue.Empty:
                if not thread.is_alive() and self._queue.empty():
                    msg = f"thread {thread.name} has ended without a word"
                    raise RuntimeError(msg) from None

    def _put(self, item: _Item | _Failure | _End) -> bool:
        while not self._is_over.is_set():
            try:
                self._queue.put(item, timeout=_WAIT_S)
            except queue.Full:
                continue
            return True
        return False
