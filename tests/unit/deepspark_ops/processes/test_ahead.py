import threading
from contextlib import closing

import pytest

from deepspark_ops.processes.ahead import ahead, mapped_ahead

LIMIT_S = 60.0


def test_items_come_in_order_from_another_thread():
    makers = set()

    def items():
        for item in range(200):
            makers.add(threading.current_thread().name)
            yield item

    assert list(ahead(items(), name="maker")) == list(range(200))
    assert makers == {"maker"}


def test_next_items_are_made_meanwhile_and_no_more_than_allowed():
    created, third = [], threading.Event()

    def items():
        for item in range(10):
            created.append(item)
            if item == 3:
                third.set()
            yield item

    with closing(ahead(items(), most=2)) as stream:
        assert next(stream) == 0
        # In use: 0. Held: 1 and 2. Made, with no room for it: 3.
        assert third.wait(LIMIT_S)
        assert created == [0, 1, 2, 3]
    assert created == [0, 1, 2, 3]


def test_error_comes_out_after_the_items_before_it():
    def items():
        yield 1
        msg = "shard 7"
        raise KeyError(msg)

    stream = ahead(items())
    assert next(stream) == 1
    with pytest.raises(KeyError, match="shard 7"):
        next(stream)


def test_end_of_the_user_ends_thread_and_iterable():
    ended = []

    def items():
        try:
            while True:
                yield 0
        finally:
            ended.append(threading.current_thread().name)

    with closing(ahead(items(), most=1, name="endless")) as stream:
        next(stream)
    assert ended == ["endless"]
    assert "endless" not in {thread.name for thread in threading.enumerate()}


def test_stages_in_a_row_end_together():
    with closing(ahead((2 * item for item in ahead(iter(range(10**9)), name="first")), name="second")) as stream:
        assert [next(stream) for _ in range(3)] == [0, 2, 4]
    assert not {"first", "second"} & {thread.name for thread in threading.enumerate()}


def test_nothing_gives_nothing():
    assert list(ahead([])) == []


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_what_is_made_on_threads_comes_in_the_items_order(n_threads):
    running, most, lock = 0, 0, threading.Lock()
    at_once = threading.Barrier(n_threads)

    def make(item):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if item < n_threads:
            at_once.wait(LIMIT_S)  # broken unless so many are made at the same time
        with lock:
            running -= 1
        return -item

    assert list(mapped_ahead(range(50), make, n_threads=n_threads)) == [(item, -item) for item in range(50)]
    assert most == n_threads


def test_no_more_items_are_held_than_allowed():
    read_items = []

    def items():
        for item in range(20):
            read_items.append(item)
            yield item

    with closing(mapped_ahead(items(), lambda item: item, n_threads=2)) as stream:
        assert next(stream) == (0, 0)
    # In use: 0. Created or being created: 1 and 2. Held by the thread: 3, and 4 without room.
    assert len(read_items) <= 5
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_an_error_of_what_makes_comes_out_in_its_place():
    def make(item):
        if item == 3:
            msg = "sample 3"
            raise KeyError(msg)
        return item

    stream = mapped_ahead(range(9), make, n_threads=2)
    assert [next(stream)[1] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="sample 3"):
        next(stream)


def test_an_error_of_the_items_comes_out():
    def items():
        yield 1
        msg = "shard 7"
        raise OSError(msg)

    with pytest.raises(OSError, match="shard 7"):
        list(mapped_ahead(items(), lambda item: item, n_threads=2))
