"""The soak's accounts find what is missing, and what is there twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.soak.faults import KINDS, draw_faults
from tests.soak.invariants import FEW_SAMPLES, descriptor_findings, growths, memory_findings
from tests.soak.ledger import Account, PushLedger, StepCount, check_center, count_steps
from tests.soak.watch import Life, Sample

N = 400
SPANS = [slice(0, 150), slice(150, 300), slice(300, 400)]


def vectors(n: int) -> list[np.ndarray]:
    drawn = np.random.default_rng(3)
    return [drawn.standard_normal(N).astype(np.float32) for _ in range(n)]


def account(folder: Path) -> tuple[Account, np.ndarray, list[np.ndarray]]:
    """Two processes: the first ended two exchanges, the second one, and died in another after two chunks."""
    first, second, third, opened = vectors(4)
    ledger_a, other = PushLedger(folder / "a.pushes", N), PushLedger(folder / "b.pushes", N)
    for ledger, push in ((ledger_a, first), (ledger_a, second), (other, third)):
        ledger.begin()
        for span in SPANS:
            ledger.note(span.start, push[span])
        ledger.end()
    other.begin()
    for span in SPANS[:2]:
        other.note(span.start, opened[span])
    ledgers = Account()
    ledgers.take(folder)
    assert list(folder.iterdir()) == []
    return ledgers, first + second + third, [opened]


def test_an_interrupted_exchange_is_there_in_each_chunk_or_not(tmp_path: Path) -> None:
    ledgers, moved, (opened,) = account(tmp_path)
    initial = np.ones(N, np.float32)
    for n_chunks in range(3):
        center = initial + moved
        for span in SPANS[:n_chunks]:
            center[span] += opened[span]
        check = check_center(initial, center, ledgers, SPANS)
        assert (check.n_open, check.off) == (1, 0)
        assert check.worst < 1e-5


def test_missing_and_doubled_updates_are_findings(tmp_path: Path) -> None:
    ledgers, moved, (opened,) = account(tmp_path)
    initial = np.zeros(N, np.float32)
    for chunk, change in ((2, 0.01), (0, 2.0), (1, -1.0)):
        center = initial + moved
        center[SPANS[chunk]] += np.float32(change) * (opened[SPANS[chunk]] if chunk < 2 else 1.0)
        assert check_center(initial, center, ledgers, SPANS).off == 1


def test_a_kill_between_the_sum_and_the_store_leaves_the_exchange_open(tmp_path: Path) -> None:
    (push,) = vectors(1)
    ledger = PushLedger(tmp_path / "a.pushes", N)
    ledger.begin()
    ledger.note(0, push)
    ledger._sums[1] = push  # as far as ``end`` comes before it stores the state
    reopened = PushLedger(tmp_path / "a.pushes", N)
    assert not reopened.total().any()
    np.testing.assert_array_equal(reopened.open_push(), push)


def test_steps(tmp_path: Path) -> None:
    lines = [["granted", 0, 4], ["done", 0, 4], ["granted", 4, 8], ["done", 6, 8], ["done", 6, 8], ["done", 10, 12]]
    (tmp_path / "a.grants").write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    ledgers = Account()
    ledgers.take(tmp_path)
    assert count_steps(ledgers, 0, 13) == StepCount(lost=3, twice=2)
    assert count_steps(ledgers, 4, 8) == StepCount(lost=0, twice=2)
    assert count_steps(ledgers, 4, 6) == StepCount(lost=0, twice=0), "what a snapshot of 6 does not have does not count"


def test_a_seed_is_a_schedule_with_every_kind() -> None:
    schedule, repeated, other = (draw_faults(seed, 4) for seed in (5, 5, 6))
    first = [next(schedule) for _ in range(60)]
    assert first == [next(repeated) for _ in range(60)]
    assert first != [next(other) for _ in range(60)]
    assert {fault.kind for fault in first[: 2 * len(KINDS)]} == set(KINDS)
    assert sorted(first, key=lambda fault: fault.at_s) == first


def life(rss: list[int], descriptors: list[int]) -> Life:
    samples = [Sample(float(i), m << 20, n, True) for i, (m, n) in enumerate(zip(rss, descriptors, strict=True))]
    return Life("server", 1, samples, warm_at=-1.0)


def test_growth_and_open_files_are_found() -> None:
    n = 4 * FEW_SAMPLES
    flat, grown = life([100] * n, [12] * n), life([100 + i for i in range(n)], [12 + i // 8 for i in range(n)])
    assert memory_findings(growths([flat])) == descriptor_findings([flat]) == []
    assert len(memory_findings(growths([grown]))) == len(descriptor_findings([grown])) == 1
