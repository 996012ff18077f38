import threading

import numpy as np
import pytest

from deepspark_ops.serve.batching import Batcher

WAIT_S = 60.0


class Net:
    """Doubles its samples; the first call waits for ``may_go``, so later requests gather."""

    def __init__(self):
        self.calls = []
        self.begun, self.may_go = threading.Event(), threading.Event()

    def __call__(self, samples):
        self.begun.set()
        assert self.may_go.wait(WAIT_S)
        numbers = [float(parts[0]) for parts in samples]
        self.calls.append(numbers)
        if -1.0 in numbers:
            msg = "a sample that the net does not take"
            raise ValueError(msg)
        return {"doubled": np.array([[2 * number] for number in numbers], np.float32)}


def scalar_samples(*numbers):
    return [(np.float32(number),) for number in numbers]


@pytest.fixture
def net():
    return Net()


def batcher_of(net, call_sizes, **options):
    settings = {"batch_size": 4, "wait_s": 0.0, **options}
    return Batcher(net, **settings, on_call=lambda n_samples, seconds: call_sizes.append(n_samples))


def test_waiting_requests_share_a_call_and_get_their_answers(net):
    call_sizes = []
    batcher = batcher_of(net, call_sizes)
    first = batcher.submit(scalar_samples(1))
    assert net.begun.wait(WAIT_S)
    waiting = [batcher.submit(scalar_samples(*numbers)) for numbers in [(2, 3), (4,), (5, 6)]]
    net.may_go.set()
    assert first.result(WAIT_S)["doubled"].tolist() == [[2]]
    assert [other.result(WAIT_S)["doubled"].ravel().tolist() for other in waiting] == [[4, 6], [8], [10, 12]]
    assert net.calls == [[1], [2, 3, 4], [5, 6]]  # 2 + 1 + 2 samples do not fit into 4
    batcher.close()
    assert call_sizes == [1, 3, 2]


def test_requests_whose_samples_must_not_meet_go_one_by_one(net):
    batcher = batcher_of(net, [], wait_s=WAIT_S, are_apart=True)
    answers = [batcher.submit(scalar_samples(*numbers)) for numbers in [(1,), (2, 3), (4, 5, 6, 7, 8)]]
    net.may_go.set()
    assert [answer.result(WAIT_S / 2)["doubled"].ravel().tolist() for answer in answers] == [
        [2], [4, 6], [8, 10, 12, 14, 16]
    ]  # fmt: skip
    assert net.calls == [[1], [2, 3], [4, 5, 6, 7], [8]]
    batcher.close()


def test_a_request_waits_for_others_but_not_for_ever(net):
    net.may_go.set()
    batcher = batcher_of(net, [], wait_s=WAIT_S)
    first, other = batcher.submit(scalar_samples(1, 2)), batcher.submit(scalar_samples(3, 4))
    assert first.result(WAIT_S / 2)["doubled"].ravel().tolist() == [2, 4]  # the batch is full, so nobody waits longer
    assert other.result(WAIT_S)["doubled"].ravel().tolist() == [6, 8]
    assert net.calls == [[1, 2, 3, 4]]
    batcher.close()
    soon = batcher_of(net, [], wait_s=0.01)
    assert soon.submit(scalar_samples(7)).result(WAIT_S)["doubled"].tolist() == [[14]]
    soon.close()


def test_a_large_request_is_computed_in_pieces(net):
    net.may_go.set()
    batcher = batcher_of(net, [])
    assert batcher.submit(scalar_samples(*range(10))).result(WAIT_S)["doubled"].ravel().tolist() == [
        2 * k for k in range(10)
    ]
    assert [len(call) for call in net.calls] == [4, 4, 2]
    batcher.close()


def test_a_bad_request_does_not_spoil_the_others(net):
    batcher = batcher_of(net, [])
    batcher.submit(scalar_samples(0))
    assert net.begun.wait(WAIT_S)
    good, bad = batcher.submit(scalar_samples(1)), batcher.submit(scalar_samples(-1))
    net.may_go.set()
    assert good.result(WAIT_S)["doubled"].tolist() == [[2]]
    with pytest.raises(ValueError, match="does not take"):
        bad.result(WAIT_S)
    assert batcher.submit(scalar_samples(3)).result(WAIT_S)["doubled"].tolist() == [[6]]
    batcher.close()


def test_closing_answers_what_waits(net):
    batcher = batcher_of(net, [])
    batcher.submit(scalar_samples(0))
    assert net.begun.wait(WAIT_S)
    gone, waiting = batcher.submit(scalar_samples(1)), batcher.submit(scalar_samples(2))
    assert gone.cancel()
    net.may_go.set()
    batcher.close()
    assert waiting.result(0)["doubled"].tolist() == [[4]]
    assert net.calls == [[0], [2]]
    with pytest.raises(RuntimeError, match="closed"):
        batcher.submit(scalar_samples(3))
