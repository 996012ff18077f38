from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.state.leases import DataLeases, DatasetOrder, EpochReport, Lease, sample_order


def leased_samples(lease: Lease) -> list[tuple[int, int, int]]:
    return [(lease.epoch, lease.shard, int(i)) for i in sample_order(lease)]


def test_one_worker_in_file_order_sees_every_sample_in_order_and_wraps() -> None:
    leases = DataLeases("train", DatasetOrder((5, 0, 3), piece_samples=2))
    samples = []
    for _ in range(12):
        lease = leases.lease(0)
        samples += leased_samples(lease)
        leases.complete(0, lease.id)
    one_epoch = [(0, i) for i in range(5)] + [(2, i) for i in range(3)]
    assert samples[:20] == [(e, *s) for e in range(3) for s in one_epoch][:20]


def test_shuffled_order_depends_on_seed_and_epoch_only() -> None:
    def epochs(seed: int) -> list[list[tuple[int, int, int]]]:
        leases = DataLeases("train", DatasetOrder((40, 30), "shuffled", seed, 8))
        return [[s for _ in range(9) for s in leased_samples(leases.lease(0))] for _ in range(2)]

    assert epochs(7) == epochs(7)
    assert epochs(7) != epochs(8)
    first, second = epochs(7)
    plain = sorted(s[1:] for s in first)
    assert plain == sorted(s[1:] for s in second) == [(0, i) for i in range(40)] + [(1, i) for i in range(30)]
    assert [s[1:] for s in first] != [s[1:] for s in second]


def test_lost_workers_piece_is_given_first() -> None:
    leases = DataLeases("train", DatasetOrder((8,), piece_samples=2))
    first, second = leases.lease(0), leases.lease(1)
    leases.release(0)
    assert leases.complete(0, first.id) is None, "it does not hold it any more"
    reissued = leases.lease(1)
    assert leased_samples(reissued) == leased_samples(first)
    for lease in (second, reissued, leases.lease(1)):
        assert leases.complete(1, lease.id) is None
    assert leases.complete(1, leases.lease(1).id) == EpochReport("train", 0, 8, 2)


def test_snapshot_continues_every_lease_from_what_was_consumed() -> None:
    dataset = DatasetOrder((10,), piece_samples=4)
    leases = DataLeases("train", dataset)
    first, second = leases.lease(0), leases.lease(1)
    state = json.loads(json.dumps(leases.retry_state(leases.to_state(), {first.id: 3})))
    resumed = DataLeases("train", dataset)
    assert resumed.restore(state)
    remaining = [resumed.lease(0) for _ in range(3)]
    assert [s for lease in remaining for s in leased_samples(lease)] == [(0, 0, i) for i in (3, 4, 5, 6, 7, 8, 9)]
    assert second.skip == 0


def test_state_of_other_data_is_not_taken() -> None:
    leases = DataLeases("train", DatasetOrder((10,), piece_samples=4))
    leases.lease(0)
    other = DataLeases("train", DatasetOrder((11,), piece_samples=4))
    assert not other.restore(json.loads(json.dumps(leases.retry_state(leases.to_state(), {}))))
    assert other.lease(0).start == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shard_samples": ()}, "needs at least one sample"),
        ({"shard_samples": (0, 0)}, "needs at least one sample"),
        ({"shard_samples": (3,), "piece_samples": 0}, "piece_samples=0: must be at least 1"),
        ({"shard_samples": (3,), "mixed_shards": -1}, "mixed_shards=-1: must be 1 to 128, or 0 for all"),
        ({"shard_samples": (3,), "order": "random"}, 'order="random"; allowed: file, shuffled'),
    ],
)
def test_unreadable_dataset_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DatasetOrder(**fields)  # type: ignore[arg-type]


datasets = st.builds(
    DatasetOrder,
    shard_samples=st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any).map(tuple),
    order=st.sampled_from(["file", "shuffled"]),
    seed=st.integers(0, 3),
    piece_samples=st.integers(1, 5),
    mixed_shards=st.integers(0, 3),
)
actions = st.lists(st.tuples(st.sampled_from(["take", "take", "done", "lose", "restart"]), st.integers(0, 2)))


@settings(max_examples=100)
@given(datasets, actions)
def test_every_sample_of_an_epoch_is_completed_once(dataset: DatasetOrder, history: list[tuple[str, int]]) -> None:
    leases = DataLeases("train", dataset)
    held: dict[int, list[Lease]] = {0: [], 1: [], 2: []}
    completed: Counter[tuple[int, int, int]] = Counter()
    reports = []
    finish = [("done", worker) for worker in range(3)] * 30
    for action, worker in [*history, *finish]:
        if action == "take":
            held[worker].append(leases.lease(worker))
        elif action == "lose":
            leases.release(worker)
            held[worker].clear()
        elif action == "restart":
            copy = DataLeases("train", dataset)
            assert copy.restore(json.loads(json.dumps(leases.to_state())))
            leases = copy
        elif held[worker]:
            lease = held[worker].pop(0)
            reports.append(leases.complete(worker, lease.id))
            completed.update(leased_samples(lease))
    epoch = 1 + max((s[0] for s in completed), default=0)
    while not any(r is not None and r.epoch == epoch for r in reports):
        lease = leases.lease(0)
        completed.update(leased_samples(lease))
        reports.append(leases.complete(0, lease.id))
    finished = [r.epoch for r in reports if r is not None]
    assert sorted(finished) == list(range(epoch + 1))
    every = [(s, i) for s, n in enumerate(dataset.shard_samples) for i in range(n)]
    for e in finished:
        assert Counter({(s, i): completed[e, s, i] for s, i in every}) == Counter(every)


def test_orders_of_pieces_do_not_share_a_stream() -> None:
    lease = Lease(epoch=0, shard=0, start=0, count=50, shuffle_seed=1)
    other = Lease(epoch=0, shard=0, start=50, count=50, shuffle_seed=1)
    assert not np.array_equal(sample_order(lease), sample_order(other) - 50)


def test_pieces_come_in_another_order_each_epoch() -> None:
    leases = DataLeases("train", DatasetOrder((40,), "shuffled", 7, 2))
    first, second = [[leases.lease(0).start for _ in range(20)] for _ in range(2)]
    assert first != second
    assert sorted(first) == sorted(second) == list(range(0, 40, 2))


FEW_MIXED = DatasetOrder((6,) * 10, "shuffled", 5, 2, mixed_shards=3)


def leased(leases: DataLeases, n: int = 30) -> list[Lease]:
    """Return the next leases; an epoch of ``FEW_MIXED`` has 30 pieces."""
    leases_of_worker = [leases.lease(0) for _ in range(n)]
    for lease in leases_of_worker:
        leases.complete(0, lease.id)
    return leases_of_worker


def groups_of(epoch: list[Lease]) -> list[set[int]]:
    """Return the shards of each stretch of nine pieces, three shards' worth."""
    return [{lease.shard for lease in epoch[first : first + 9]} for first in range(0, 30, 9)]


def test_where_few_shards_are_mixed_each_is_read_in_one_stretch_of_an_epoch() -> None:
    leases = DataLeases("train", FEW_MIXED)
    epochs = [leased(leases) for _ in range(3)]
    for epoch in epochs:
        assert sorted(len(group) for group in groups_of(epoch)) == [1, 3, 3, 3]
        assert set.union(*groups_of(epoch)) == set(range(10))
    assert len({tuple(frozenset(group) for group in groups_of(epoch)) for epoch in epochs}) == 3
    first = [lease.shard for lease in epochs[0][:9]]
    assert first != sorted(first), "pieces of the group's shards take turns"


def test_a_lease_names_the_shards_to_come_up_to_the_end_of_the_next_group() -> None:
    leases = DataLeases("train", FEW_MIXED)
    pieces = leased(leases, 60)
    for number, lease in enumerate(pieces[:51]):
        epoch, position = divmod(number, 30)
        end = 30 * epoch + 9 * (position // 9) + 18
        if position >= 27:  # the last group has one shard; the first group of the next epoch follows
            end = 30 * (epoch + 1) + 9
        elif position >= 18:
            end = 30 * (epoch + 1)
        coming = list(dict.fromkeys(piece.shard for piece in pieces[number:end]))
        assert list(lease.next_shards) == coming, number
    assert leased(DataLeases("train", DatasetOrder((6,) * 4, "shuffled", 5, 2)), 1)[0].next_shards == ()


def test_an_epoch_keeps_its_order_when_the_run_goes_on_with_more_mixed_shards() -> None:
    leases = DataLeases("train", FEW_MIXED)
    begun = leased(leases, 40)
    remaining = leased(DataLeases("train", FEW_MIXED), 60)[40:]
    state = json.loads(json.dumps(leases.to_state()))
    resumed = DataLeases("train", replace(FEW_MIXED, mixed_shards=5))
    assert resumed.restore(state)
    assert [leased_samples(lease) for lease in leased(resumed, 20)] == [leased_samples(lease) for lease in remaining]
    assert {lease.shard for lease in begun[30:]} | {lease.shard for lease in remaining} == set(range(10))
    halves = leased(resumed)
    assert [len({lease.shard for lease in half}) for half in (halves[:15], halves[15:])] == [5, 5]
    resumed_again = DataLeases("train", replace(FEW_MIXED, mixed_shards=2))
    assert resumed_again.restore(json.loads(json.dumps(resumed.to_state())))
    third = leased(resumed_again)
    assert {lease.epoch for lease in third} == {3}
    assert [len({lease.shard for lease in third[first : first + 6]}) for first in range(0, 30, 6)] == [2] * 5


def test_a_state_from_before_there_were_groups_is_taken() -> None:
    leases = DataLeases("train", replace(FEW_MIXED, mixed_shards=0))
    leased(leases, 10)
    state = json.loads(json.dumps(leases.to_state()))
    del state["mixed_before"], state["dataset"]["mixed_shards"]
    remaining = leased(leases, 20)
    resumed = DataLeases("train", FEW_MIXED)
    assert resumed.restore(state)
    assert [leased_samples(lease) for lease in leased(resumed, 20)] == [leased_samples(lease) for lease in remaining]
    assert sorted(len(group) for group in groups_of(leased(resumed))) == [1, 3, 3, 3]
