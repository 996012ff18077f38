"""Workers of different speeds, killed and resumed: all parts of a snapshot are of one moment, and no record is missed.

The links make happen in each round what a free run leaves to chance: worker 0 goes on before the others have
acknowledged, and worker 1 sends its state after worker 2 has computed further steps.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.exchange.local_exchange import LocalExchange, LocalLink
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.state.grants import Grant, GrantAnswer
from deepspark_ops.exchange.state.leases import DataLeases, DatasetOrder, sample_order
from deepspark_ops.exchange.transport.link import ExchangeReport
from deepspark_ops.param_vector import Vector
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.data.batches import LeasedBatches
from deepspark_ops.train.snapshots.snapshot import last_state
from deepspark_ops.train.snapshots.state_file import read_run_state, read_worker_state
from deepspark_ops.train.worker import process
from tests.integration.small_run import make_dataset
from tests.integration.train.in_process import Death, Finished, run_in_process
from tests.integration.train.shared_nets import nets_compiled_once
from tests.integration.train.test_lbfgs import lbfgs_config

pytestmark = pytest.mark.tf

N_WORKERS, N_RECORDS = 3, 64
WAIT_S = 120.0


class Pace:
    """Pace of the workers of a life: workers wait for each other, and die at ``dies_at``; thread-safe."""

    def __init__(self, *, dies_at: int, last: int) -> None:
        """Every worker dies in place of its first acknowledgement of steps behind ``dies_at``; ``last``: max_iter."""
        self.dies_at = dies_at
        self.last = last
        self.links: dict[int, PacedLink] = {}
        self._changed = threading.Condition()
        self._is_dead = False

    def link(self, exchange: LocalExchange, worker: int) -> PacedLink:
        self.links[worker] = PacedLink(exchange, self)
        return self.links[worker]

    def note(self, worker: int, counter: str, value: int) -> None:
        with self._changed:
            setattr(self.links[worker], counter, value)
            self._changed.notify_all()

    def wait(self, is_over: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: is_over() or self._is_dead, WAIT_S)
            if self._is_dead:
                raise Death

    def die(self) -> None:
        with self._changed:
            self._is_dead = True
            self._changed.notify_all()
        raise Death


class PacedLink(LocalLink):
    """Has what a worker read: ``takes``, the images of each step, and ``clocks``, the steps it was granted."""

    def __init__(self, exchange: LocalExchange, pace: Pace) -> None:
        super().__init__(exchange)
        self._pace = pace
        self.takes: list[npt.NDArray[np.uint8]] = []
        self.clocks: list[int] = []
        self.cuts: dict[int, int] = {}
        self.n_begun = self.went_on = 0

    def request_grant(self, want: int, *, held: Grant | None = None, done: Sequence[Grant] = ()) -> GrantAnswer:
        for grant in done:
            self._before_acknowledging(grant)
        answer = super().request_grant(want, held=held, done=done)
        if isinstance(answer, Grant):
            self.clocks += range(answer.start, answer.stop)
        self._pace.note(self._worker, "went_on", self.n_begun)
        return answer

    def exchange(
        self, local: Vector, *, measure_distance: bool = False, note: RoundNote | None = None
    ) -> tuple[Vector, ExchangeReport]:
        self._pace.note(self._worker, "n_begun", self.n_begun + 1)
        return super().exchange(local, measure_distance=measure_distance, note=note)

    def acknowledge(self, grant: Grant) -> bool:
        self._before_acknowledging(grant)
        return super().acknowledge(grant)

    def _before_acknowledging(self, grant: Grant) -> None:
        if grant.stop > self._pace.dies_at:
            self._pace.die()
        if self._worker > 0 and grant.count:
            self._pace.wait(lambda: self._pace.links[0].went_on >= self.n_begun)

    def send_state(
        self, iteration: int, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        self.cuts[iteration] = len(self.takes)
        if self._worker == 1 and iteration < self._pace.last:
            self._pace.wait(lambda: self._pace.links[2].n_begun > self.n_begun)
        super().send_state(iteration, meta, arrays)


class NotedBatches(LeasedBatches):
    """Notes what is taken at the worker's link."""

    def take(self, max_steps: int) -> tuple[Feeds, int]:
        feeds, n_steps = super().take(max_steps)
        images = np.round(feeds["data"][:n_steps] / np.float32(0.01)).astype(np.uint8)
        assert isinstance(self._link, PacedLink)
        self._link.takes += list(images)
        return feeds, n_steps


@pytest.fixture(autouse=True)
def _noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(process, "LeasedBatches", NotedBatches)
    with nets_compiled_once():
        yield


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A dataset and its images in the order of the shards."""
    root = tmp_path_factory.mktemp("dataset")
    return root, [image.tobytes() for image in make_dataset(root, n_train=N_RECORDS)["train"][0]]


def life(config: TrainConfig, *, dies_at: int, last: int) -> tuple[Finished, dict[int, PacedLink]]:
    pace = Pace(dies_at=dies_at, last=last)
    finished = run_in_process(config, link_of=pace.link)
    return finished, pace.links


def uses(takes: list[npt.NDArray[np.uint8]]) -> Counter[bytes]:
    return Counter(image.tobytes() for step in takes for image in step)


def killed_and_gone_on(
    config: TrainConfig, images: list[bytes], *, dies_at: int, snapshot: int, last: int
) -> tuple[Counter[bytes], int, dict[int, PacedLink]]:
    """Return how often each record was used and will be until the end of the epoch that the run ended in.

    Used records are the records in a worker's state of the snapshot, and the records of the second life.

    Returns:
        The count of each image, the number of epochs, and the links of the life that was killed.
    """
    dead, links = life(config, dies_at=dies_at, last=last)
    assert {outcome.message for outcome in dead.outcomes} == {"died"}
    paths = dead.prepared.run.paths
    assert paths.snapshot_iterations()[-1] == snapshot
    assert all(snapshot in link.cuts for link in links.values()), "a worker is missing in it"
    finished, second_links = life(config, dies_at=last, last=last)
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"] * N_WORKERS, finished.outcomes
    assert finished.start.clock == snapshot
    used: Counter[bytes] = Counter()
    for worker in range(N_WORKERS):
        used += uses(links[worker].takes[: links[worker].cuts[snapshot]]) + uses(second_links[worker].takes)
    path = last_state(paths)
    assert path is not None
    (written,) = read_run_state(path).leases.values()
    order = {**written["dataset"], "shard_samples": tuple(written["dataset"]["shard_samples"])}
    leases = DataLeases("train", DatasetOrder(**order))
    assert leases.restore(written)
    while (lease := leases.lease(0)).epoch <= written["epoch"]:
        first = sum(order["shard_samples"][: lease.shard])
        used.update(images[first + at] for at in sample_order(lease).tolist())
    return used, written["epoch"] + 1, links


@pytest.mark.parametrize(
    ("strategy", "comm_period"), [("sync", 1), ("local_sgd", 2), pytest.param("diloco", 1, marks=pytest.mark.long)]
)
def test_rounds_leave_snapshots_of_one_moment_and_read_every_record_once(
    strategy: str, comm_period: int, images: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    """A worker's step behind a snapshot reads a piece to its end: half a piece is a minibatch."""
    every = N_WORKERS * comm_period
    changes: dict[str, Any] = {"strategy": strategy, "n_workers": N_WORKERS, "comm_period": comm_period}
    config = lbfgs_config(
        tmp_path,
        images[0],
        max_iter=4 * every,
        overrides=f"snapshot: {every} base_lr: 0.01",
        **changes,
    )
    used, n_epochs, links = killed_and_gone_on(config, images[1], dies_at=3 * every, snapshot=3 * every, last=4 * every)
    assert set(used.values()) == {n_epochs}
    assert len(used) == N_RECORDS
    for iteration in (every, 2 * every, 3 * every):
        for link in links.values():
            cut = link.cuts[iteration]
            assert all(clock < iteration for clock in link.clocks[:cut])
            assert all(clock >= iteration for clock in link.clocks[cut:])
    last = last_state(RunPaths(config.run_dir))
    assert last is not None
    states = [read_worker_state(last, worker) for worker in range(N_WORKERS)]
    assert [state.updates for state in states if state is not None] == [4 * comm_period] * N_WORKERS
