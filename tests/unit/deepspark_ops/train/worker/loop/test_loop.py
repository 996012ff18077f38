"""The loop against a model of one number and the exchange in this process: order of calls, events, ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffe_import.devices.loss_scale import LOWEST, StepScales
from caffe_import.net.param_layout import ParamEntry
from deepspark_ops.errors import TrainingFailed
from deepspark_ops.events import Event, format_event, read_events
from deepspark_ops.exchange.comm_period import AgreedPeriod, CommPeriod, LossBudget, ScheduledPeriod
from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.grants import Grant, GrantAnswer, Schedule, Wait
from deepspark_ops.exchange.transport.link import RoundEnd, WorkerLink
from deepspark_ops.param_vector import StatisticBlobs, Vector
from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.snapshots.worker_state import WorkerState
from deepspark_ops.train.worker.loop.center_watch import WatchPlan
from deepspark_ops.train.worker.loop.loop import WorkerLoop
from deepspark_ops.train.worker.net.model import StepReport
from deepspark_ops.train.worker.rates.rate_scale import RateScale
from deepspark_ops.train.worker.rates.stabiliser import StabiliserPlan
from tests.reference.slow_normalization import slow_moving_sums
from tests.unit.deepspark_ops.train.small_plan import PLAN

HALF = StabiliserPlan(n_workers=2, momentum_from_center=0.5)


class CountingModel:
    """A parameter that grows by 1 per step; the loss of step k is 100 - k."""

    def __init__(self) -> None:
        self.value = np.zeros(1, np.float32)
        self.calls: list[tuple[int, int, float]] = []
        self.tested: list[float] = []
        self.center = np.nan
        self.nans: set[int] = set()
        self.starts: list[float] = []
        self.explains = False
        self.scales: StepScales | None = None
        self.written: list[tuple[object, int]] = []
        self.momenta: list[tuple[int, float]] = []

    def run(self, *, step: int, n_steps: int, rate_scale: float, feeds: Feeds) -> StepReport:
        self.calls.append((step, n_steps, rate_scale))
        self.value = self.value + n_steps
        losses = 100.0 - np.arange(step, step + n_steps, dtype=np.float32)
        if bad_steps := self.nans.intersection(range(step, step + n_steps)):
            losses[min(bad_steps) - step :] = np.nan
            self.value = self.value * np.float32(np.nan)
        lines = (lambda offset: [f"    [Forward] step {step + offset}"]) if self.explains else None
        scales = self.scales
        if scales is not None:  # of all steps of the run
            parts = (values[step : step + n_steps] for values in (scales.begun, scales.updated, scales.ended))
            scales = StepScales(*parts)
        return StepReport(losses, np.full(n_steps, 0.5 * rate_scale, np.float32), {}, lines, scales)

    def local(self) -> np.ndarray:
        return self.value

    def reader_of_local(self) -> Callable[[], np.ndarray]:
        value = self.value
        return lambda: value

    def replace_local(self, local: np.ndarray) -> None:
        self.value = local

    def start_at(self, params: np.ndarray) -> None:
        self.value = params
        self.starts.append(float(params[0]))

    def momentum(self) -> list[np.ndarray]:
        return [np.ones(1, np.float32)]

    def replace_momentum(self, momentum: list[np.ndarray]) -> None:
        self.momenta.append((len(self.calls), float(momentum[0][0])))

    def use_blob_factors(self, factors: np.ndarray) -> None:
        raise AssertionError("no rate is measured")

    def step_of(self, step: int, feeds: Feeds) -> Callable[[Vector], Vector]:
        raise AssertionError("no rate is measured")

    def round_note(self) -> None:
        return None

    def state(self) -> WorkerState:
        return WorkerState(np.array([[7.0]], np.float32), {"lstm/h": np.ones(2, np.float32)}, updates=len(self.calls))

    def begin_test(self, net: int, params: np.ndarray) -> None:
        self.center = float(params[0])

    def test(self, net: int, batches: Iterable[Feeds]) -> Generator[Mapping[str, np.ndarray], None, None]:
        for feeds in batches:
            self.tested.append(self.center)
            yield {"accuracy": feeds["batch"][0] / 10, "per_class": np.array([1.0, feeds["batch"][0]], np.float32)}

    def test_debug_lines(self, net: int) -> list[str]:
        return [f"    [Forward] net {net}"] if self.explains else []

    def write_outputs(self, offset: int) -> None:
        self.written.append((self.calls[-1][0] if self.calls else -1, offset))

    def write_test_outputs(self, net: int) -> None:
        self.written.append(("test", net))


class AtMostThree:
    """Gives at most three steps a call; test batches hold their number."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []
        self.ends_after: int | None = None

    def take(self, max_steps: int) -> tuple[Feeds, int]:
        if self.ends_after is not None:
            self.ends_after -= 1
            if self.ends_after < 0:
                return {}, 0
        return {}, min(3, max_steps)

    def test_batches(self, net: int, ordinal: int) -> Iterator[Feeds]:
        self.requests.append((net, ordinal))
        for i in range(2):
            yield {"batch": np.full(7, 2 * ordinal + i, np.float32)}

    def leases(self) -> dict[str, dict[str, int]]:
        return {"train": {"5": 17}}


class Bench:
    """A loop with everything around it, ready to run."""

    def __init__(self, folder: Path, schedule: Schedule, **plan: object) -> None:
        self.model, self.batches = CountingModel(), AtMostThree()
        self.plan = replace(PLAN, **{"comm_period": CommPeriod(4), **plan})
        settings = ExchangeSettings(
            run_id=1,
            n_params=1,
            n_workers=self.plan.n_workers,
            schedule=schedule,
            work=folder / "work",
            events=folder / "events.jsonl",
        )
        self.exchange = LocalExchange(settings, np.zeros(1, np.float32))
        self.link = self.exchange.link()
        self.link.join(self.plan.worker)

    def run(self):
        return WorkerLoop(self.model, self.link, self.batches, self.plan, self.model).run()

    def events(self, kind: str) -> list[Event]:
        return [event for event in read_events(self.exchange.settings.events) if event.kind == kind]


def test_every_step_is_run_once_in_order_and_the_center_follows(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(10))
    summary = bench.run()
    # Grants of 4, cut by the batches to 3 + 1: the exchange comes after the grant, not after each call.
    assert [(step, n) for step, n, _ in bench.model.calls] == [(0, 3), (3, 1), (4, 3), (7, 1), (8, 2)]
    assert (summary.steps, summary.exchanges, summary.last_loss) == (10, 3, 91.0)
    assert bench.exchange.center.vector.tolist() == [10.0]
    assert bench.exchange.poll().acknowledged == 10


@pytest.mark.parametrize(("is_expected", "n_pulls"), [(True, 1), (False, 2)])
def test_worker_without_steps_pulls_unless_the_others_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_expected: bool, n_pulls: int
) -> None:
    bench = Bench(tmp_path, Schedule(8), waits_in_rounds=True)
    request, pull = bench.link.request_grant, bench.link.pull

    def wait(want: int, *, held: Grant | None, done: Sequence[Grant]) -> Wait:
        assert [bench.link.acknowledge(grant) for grant in done] == [True]
        return Wait(0.0, is_expected)

    answers, pulls = [wait, request], []
    monkeypatch.setattr(
        bench.link, "request_grant", lambda *a, **k: answers.pop()(*a, **k) if answers else request(*a, **k)
    )
    monkeypatch.setattr(bench.link, "pull", lambda: pulls.append(1) or pull())
    assert bench.run().steps == 8
    assert len(pulls) == n_pulls, "at the first grant, since rounds may have gone on while it compiled"


def test_a_grant_and_the_acknowledgement_before_are_one_message_and_one_line_of_the_journal(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(40))
    bench.run()
    lines = bench.exchange.settings.journal().read_text().splitlines()
    calls = [json.loads(line)["call"] for line in lines[1:]]
    # 10 grants of 4 steps, the last snapshot's state, and the answer that the run is finished.
    assert (calls.count("request_grant"), calls.count("acknowledge")) == (12, 0)
    assert bench.exchange.poll().acknowledged == 40


def test_the_next_grant_is_requested_beside_the_last_steps_of_a_grant(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(40), asks_ahead=True)
    request, run, asked, beside = bench.link.request_grant, bench.model.run, threading.Event(), []

    def noted_request(*arguments: Any, **options: Any) -> GrantAnswer:
        answer = request(*arguments, **options)
        asked.set()
        return answer

    def run_and_wait(*, step: int, n_steps: int, **arguments: Any) -> StepReport:
        report = run(step=step, n_steps=n_steps, **arguments)
        if (step + n_steps) % 4 == 0:
            beside.append(asked.wait(60.0))
        asked.clear()
        return report

    bench.link.request_grant, bench.model.run = noted_request, run_and_wait  # type: ignore[method-assign]
    assert bench.run().steps == 40
    assert beside == [True] * 10
    lines = bench.exchange.settings.journal().read_text().splitlines()
    calls = [json.loads(line)["call"] for line in lines[1:]]
    # The last request ahead finds no steps and is made again; the others take the place of the requests afterwards.
    assert (calls.count("request_grant"), calls.count("acknowledge")) == (13, 0)


def test_rate_scale_follows_the_clock_of_each_call(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(10), rate_scale=RateScale(3.0, 8, 0, ""))
    bench.run()
    assert [scale for _, _, scale in bench.model.calls] == [1.0, 1.75, 2.0, 2.75, 3.0]


def test_the_rate_falls_with_the_number_of_workers(tmp_path: Path) -> None:
    scale = RateScale(3.0, 0, 0, "", of_workers=(2.0, 3.0))
    bench = Bench(tmp_path, Schedule(12), n_workers=2, rate_scale=scale)
    other, run = bench.exchange.link(), bench.model.run
    other.join(1)

    def run_and_lose(**arguments: object) -> StepReport:
        if arguments["step"] == 4:
            other.close()
        return run(**arguments)  # type: ignore[arg-type]

    bench.model.run = run_and_lose  # type: ignore[method-assign]
    bench.run()
    assert [(step, scale) for step, _, scale in bench.model.calls][::2] == [(0, 3.0), (4, 3.0), (8, 2.0)]


def test_display_averages_and_keeps_caffes_places_and_the_last_line_is_at_the_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(10), display=4, average_loss=2)
    bench.run()
    losses = bench.events("loss")
    assert [event.clock for event in losses] == [0, 4, 8, 10]
    assert [event.data["loss"] for event in losses] == [100.0, 96.5, 92.5, 91.5]
    assert {event.data["learning_rate"] for event in losses} == {0.5}
    assert [event.clock for event in bench.events("exchange")] == [4, 8, 10]
    assert all(event.data["p99_ms"] > 0.0 for event in bench.events("exchange"))


@pytest.mark.parametrize("display", [1, 2, 3, 7, 100])
def test_displays_of_a_call_share_its_time_and_give_the_runs_throughput(tmp_path: Path, display: int) -> None:
    clock = StepClock()
    bench = Bench(tmp_path, Schedule(29), display=display, comm_period=CommPeriod(12), time=clock, images_per_step=10)
    run, bench.batches.take = bench.model.run, lambda max_steps: ({}, min(6, max_steps))

    def timed_run(**arguments: Any) -> StepReport:
        clock.seconds += 0.25 * arguments["n_steps"]
        return run(**arguments)

    bench.model.run = timed_run  # type: ignore[method-assign]
    bench.run()
    losses = [event.data for event in bench.events("loss")]
    assert len(losses) == 1 + -(-28 // display)
    assert [data["images_per_s"] for data in losses] == [40.0] * len(losses)
    assert sum(data["compute_s"] for data in losses) == pytest.approx(29 * 0.25)
    assert all(data["compute_s"] > 0.0 for data in losses)


class StepClock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def test_a_watch_looks_before_the_exchange_and_costs_no_look_without_one(tmp_path: Path) -> None:
    plan = WatchPlan(6, (ParamEntry("ip", 0, 0, (1,)),), has_histograms=True, has_distance=True)
    bench = Bench(tmp_path, Schedule(20), watch=plan)
    looks, look = [], bench.link.look
    bench.link.look = lambda **options: looks.append(1) or look(**options)  # type: ignore[method-assign]
    bench.run()
    events = bench.events("watch")
    assert [event.clock for event in events] == [8, 12, 20]  # the first exchange at or after 6, 12 and 18
    # A grant has four steps, each adds 1: the worker is four ahead of the center as the last exchange left it.
    assert [event.data["norm"] for event in events] == [[4.0], [8.0], [16.0]]
    assert [event.data["distance"] for event in events] == [[4.0], [4.0], [4.0]]
    assert [event.data.get("update") for event in events] == [None, [4.0], [8.0]]
    assert len(looks) == 3
    unwatched = Bench(tmp_path / "unwatched", Schedule(20))
    unwatched.link.look = lambda **options: pytest.fail("a look without a watch")  # type: ignore[method-assign]
    unwatched.run()
    assert unwatched.events("watch") == []


def test_the_time_of_a_watch_is_no_time_of_exchange(tmp_path: Path) -> None:
    clock = StepClock()
    plan = WatchPlan(4, (ParamEntry("ip", 0, 0, (1,)),), has_histograms=True, has_distance=True)
    bench = Bench(tmp_path, Schedule(8), watch=plan, display=4, time=clock, images_per_step=10)
    run, look = bench.model.run, bench.link.look

    def timed_run(**arguments: Any) -> StepReport:
        clock.seconds += 0.25 * arguments["n_steps"]
        return run(**arguments)

    def slow_look(**options: Any) -> Vector:
        clock.seconds += 100.0
        return look(**options)

    bench.model.run, bench.link.look = timed_run, slow_look  # type: ignore[method-assign]
    bench.run()
    losses = [event.data for event in bench.events("loss")]
    assert [data["images_per_s"] for data in losses] == [40.0] * 3
    assert [data["exchange_s"] for data in losses] == [0.0] * 3


def test_worker_without_a_boundary_shows_the_first_step_after_the_boundary(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(30), display=10)
    grant = bench.link.request_grant(7)  # steps 0..6 are another's: acknowledged without this loop
    bench.link.acknowledge(grant)
    bench.run()
    assert [event.clock for event in bench.events("loss")] == [10, 20, 30]


def test_resumed_run_shows_only_at_boundaries(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(30, first=15), display=10, origin=15)
    bench.run()
    assert [event.clock for event in bench.events("loss")] == [20, 30]


def test_tests_run_before_their_step_on_the_own_parameters_and_once_more_at_the_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(6, test_interval=3), n_test_nets=2, test_interval=3)
    bench.run()
    evaluations = bench.events("evaluation")
    assert [(event.clock, event.data["test_net"]) for event in evaluations] == [
        (0, 0), (0, 1), (3, 0), (3, 1), (6, 0), (6, 1),
    ]  # fmt: skip
    assert bench.batches.requests == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert bench.model.tested == [0.0] * 4 + [3.0] * 4 + [6.0] * 4
    # Means over the two batches 2k and 2k + 1.
    assert [event.data["accuracy"] for event in evaluations[::2]] == pytest.approx([0.05, 0.25, 0.45])
    assert evaluations[-1].data["per_class"] == [1.0, 4.5]
    assert {event.data["n_samples"] for event in evaluations} == {14}


@pytest.mark.parametrize("asks_ahead", [False, True])
def test_state_is_sent_before_the_next_step_with_the_data_position(tmp_path: Path, asks_ahead: bool) -> None:
    bench = Bench(tmp_path, Schedule(8, snapshot=4), snapshot=4, asks_ahead=asks_ahead)
    bench.run()
    for iteration, calls in ((4, 2), (8, 4)):
        folder = tmp_path / "work" / "pending" / f"iter_{iteration}"
        with np.load(folder / "worker_0.npz") as arrays:
            assert arrays["history"].tolist() == [[7.0]]
            assert arrays["layer_state/lstm/h"].tolist() == [1.0, 1.0]
        meta = (folder / "worker_0.json").read_text()
        assert f'"updates": {calls}' in meta
        assert '"leases": {"train": {"5": 17}}' in meta
        assert np.fromfile(folder / "center.f32", np.float32).tolist() == [float(iteration)]


def test_loss_that_is_not_finite_fails_and_is_not_pushed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(10), rate_scale=RateScale(2.0, 0, 0, ""))
    bench.model.nans = {5}
    with pytest.raises(TrainingFailed) as raised:
        bench.run()
    assert str(raised.value) == (
        "worker 0: loss is nan at minibatch 5 (learning_rate=1 = base_lr=0.5 by its policy, times rate_scale=2);"
        " the steps are too large: lower base_lr in the solver, or set rate_scale to none or a smaller number"
    )
    assert bench.exchange.center.vector.tolist() == [4.0]


def test_changes_of_the_loss_scale_are_notes_and_loss_lines_show_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(6), display=2)
    begun, are_updated = np.array([8, 8, 4, 4, 4, 8], np.float32), np.array([True, False, True, True, True, True])
    bench.model.scales = StepScales(begun, are_updated, np.append(begun, 8)[1:])
    bench.run()
    assert [(event.clock, event.data["text"].split(":")[0]) for event in bench.events("note")] == [
        (1, "loss_scale 8 -> 4"),
        (4, "loss_scale 4 -> 8"),
    ]
    scales = [(event.clock, event.data["loss_scale"]) for event in bench.events("loss")]
    assert scales == [(0, 8), (2, 4), (4, 4), (6, 8)]


def test_a_gradient_that_no_loss_scale_makes_finite_ends_the_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(6))
    lowest = np.full(6, LOWEST)
    bench.model.scales = StepScales(lowest, np.array([True, True, False, True, True, True]), lowest)
    with pytest.raises(TrainingFailed) as caught:
        bench.run()
    assert str(caught.value) == (
        "worker 0: the gradient at minibatch 2 is not finite in float16, even with loss_scale=5.96046e-08; use"
        " precision=bfloat16 or float32, or lower base_lr"
    )
    assert bench.exchange.center.vector.tolist() == [0.0]


def test_loss_of_a_search_that_is_not_finite_is_pushed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(10), searches=True, display=1)
    bench.model.nans = {5}
    bench.batches.take = lambda max_steps: ({}, 1)  # type: ignore[method-assign]
    bench.run()
    assert np.isnan(bench.exchange.center.vector).all()
    assert [event.data["loss"] for event in bench.events("loss")][4:7] == [96.0, "nan", 94.0]


def test_run_that_ended_elsewhere_ends_this_loop(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(4))
    bench.batches.ends_after = 0
    assert bench.run().steps == 0


def test_chosen_comm_period_is_logged_with_its_reason(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(40), comm_period=CommPeriod("auto", share=0.02))
    bench.run()
    (note,) = bench.events("note")
    assert note.data["text"].startswith(f"comm_period {bench.plan.comm_period.value}: an exchange takes ")


class InRounds:
    """A link whose exchanges wait 40 ms for others and last 5 ms more; then all take ``comm_period``."""

    def __init__(self, link: WorkerLink, comm_period: int, clock: StepClock) -> None:
        self._link, self._comm_period, self._clock = link, comm_period, clock
        self.notes: list[RoundNote | None] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._link, name)

    def exchange(self, local: Vector, *, measure_distance: bool, note: RoundNote | None) -> tuple[Vector, object]:
        self.notes.append(note)
        self._clock.sleep(0.045)
        new_local, report = self._link.exchange(local, measure_distance=measure_distance, note=note)
        return new_local, report._replace(round_end=RoundEnd(0.04, self._comm_period))


def test_worker_says_which_period_it_wants_and_takes_the_agreed_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(15), comm_period=AgreedPeriod(3, 0.02))
    bench.link = link = InRounds(bench.link, 6, StepClock())
    assert bench.run().exchanges == 3
    assert [sum(n for start, n, _ in bench.model.calls if low <= start < low + 6) for low in (3, 9)] == [6, 6]
    assert link.notes == [RoundNote(comm_period=3)] * 3
    assert [event.data["text"] for event in bench.events("note")] == ["comm_period 6: another worker needs it"]


def test_waiting_for_others_is_no_cost_of_an_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    observed: list[dict[str, float]] = []
    monkeypatch.setattr(AgreedPeriod, "observe", lambda self, **times: observed.append(times))
    clock = StepClock()
    bench = Bench(tmp_path, Schedule(30), comm_period=AgreedPeriod(3, 0.02), time=clock)
    bench.link = InRounds(bench.link, 0, clock)
    bench.run()
    assert [times["exchange_s"] for times in observed if times["n_steps"]] == pytest.approx([0.005] * 10)


def test_debug_lines_come_with_the_loss_lines_and_with_each_tests_first_batch(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(6, test_interval=3), display=4, n_test_nets=1, test_interval=3)
    bench.model.explains = True
    bench.run()
    trained = [event for event in bench.events("debug") if "test_net" not in event.data]
    assert [(event.clock, event.data["lines"]) for event in trained] == [
        (0, ["    [Forward] step 0"]),
        (4, ["    [Forward] step 4"]),
    ]
    tested = [event for event in bench.events("debug") if "test_net" in event.data]
    assert [event.clock for event in tested] == [0, 3, 6]
    assert format_event(tested[0]) == "worker 0 debug clock=0 test_net=0    [Forward] net 0"


def test_side_outputs_are_written_where_a_loss_is_shown_after_each_test_and_at_the_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(6, test_interval=6), display=4, n_test_nets=1, test_interval=6)
    bench.run()
    assert bench.model.written == [("test", 0), (0, 0), (4, 0), ("test", 0), (4, -1)]


def test_an_overlapped_exchange_moves_what_the_worker_has_become_by_what_it_was(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(12, snapshot_after_train=False), n_workers=2, overlaps=True)
    bench.batches.take = lambda max_steps: ({}, max_steps)  # type: ignore[method-assign]
    loop = WorkerLoop(bench.model, bench.link, bench.batches, bench.plan, bench.model)
    bench.link.pull()
    other = bench.exchange.link()
    other.join(1)
    others_locals = [other.pull()]
    run = bench.model.run

    def run_beside(**arguments: object) -> StepReport:
        # The other worker meets the center once between two exchanges of the first.
        if loop._background is not None and loop._background._running is not None:
            loop._background._running.result()
        others_locals[0], _ = other.exchange(others_locals[0])
        return run(**arguments)  # type: ignore[arg-type]

    bench.model.run = run_beside  # type: ignore[method-assign]
    alpha = np.float32(bench.exchange.settings.alpha())
    # By hand: e of each period's end is applied to the next one's; the other worker never moves but by its own e.
    center, other_local, local, corrections = np.float32(0), np.float32(0), np.float32(0), []
    for period in range(3):
        e = alpha * (other_local - center)
        other_local, center = other_local - e, center + e
        local = np.float32(local + 4)
        if period:
            local = np.float32(local - corrections[-1])
        corrections.append(alpha * (local - center))
        center = center + corrections[-1]
    local = local - corrections[-1]
    summary = loop.run()
    assert (summary.steps, summary.exchanges) == (12, 3)
    np.testing.assert_allclose(bench.model.value, [local], rtol=1e-6)
    np.testing.assert_allclose(bench.exchange.center.vector, [center], rtol=1e-6)
    assert bench.exchange.poll().acknowledged == 12
    # One exchange of the other worker since each pull, and one before, unknown to the steps in between.
    assert loop._progress.sums.staleness == 1 + 2 + 2


def test_schedules_follow_the_clock_and_are_logged(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        Schedule(14),
        n_workers=2,
        comm_period=ScheduledPeriod([(0, 2.0), (6, 4.0)], 0),
        moving_rates=((0, 0.5), (4, 0.25)),
    )
    bench.link.use_moving_rate(0.5)
    bench.run()
    # The grant that meets clock 6 was requested before clock 6.
    assert [event.clock for event in bench.events("note")] == [4, 6]
    assert bench.events("note")[0].data["text"] == "moving_rate 0.25: as scheduled from minibatch 4 on"
    assert bench.events("note")[1].data["text"] == "comm_period 4, was 2: as scheduled"
    # Elastic exchanges of the only worker, by hand: steps 2, 2 at 0.5, then 2, 2, 4, 2 at 0.25.
    local = center = 0.0
    for n_steps, alpha in ((2, 0.5), (2, 0.5), (2, 0.25), (2, 0.25), (4, 0.25), (2, 0.25)):
        local += n_steps
        pull = alpha * (local - center)
        local, center = local - pull, center + pull
    assert bench.exchange.center.vector.tolist() == [center]


def test_loss_budget_exchanges_when_it_is_spent(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(40), comm_period=LossBudget(3))
    summary = bench.run()
    # Losses 100, 99, 98 make the budget of 297. 97 + 96 + 95 is below it: four steps, and so on; 76 to 72 make five.
    assert summary.steps == 40
    assert [step for step, _, _ in bench.model.calls][:3] == [0, 3, 6]
    ends, spent, steps = [], 0.0, 0
    for step in range(40):
        spent, steps = spent + 100.0 - step, steps + 1
        if (steps == 3 and not ends) or spent > 297.0:
            ends.append(step + 1)
            spent, steps = 0.0, 0
    assert steps > 0  # the end of the run cuts the last period short
    assert summary.exchanges == len(ends) + 1


@pytest.mark.parametrize(
    "period",
    [LossBudget(10), CommPeriod(64), ScheduledPeriod([(0, 7.0), (20, 50.0)], 0)],
    ids=["loss_budget", "fixed", "scheduled"],
)
@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("asks_ahead", [False, True])
def test_acknowledged_steps_are_at_the_center_at_all_times(
    tmp_path: Path, period: CommPeriod, overlaps: bool, asks_ahead: bool
) -> None:
    asks_ahead = asks_ahead and period.is_known_ahead
    bench = Bench(tmp_path, Schedule(100), comm_period=period, overlaps=overlaps, asks_ahead=asks_ahead)
    run, behind = bench.model.run, []

    def run_and_look(**arguments: object) -> StepReport:
        behind.append(bench.exchange.poll().acknowledged - float(bench.exchange.center.vector[0]))
        return run(**arguments)  # type: ignore[arg-type]

    bench.model.run = run_and_look  # type: ignore[method-assign]
    bench.run()
    assert max(behind) <= 0
    assert bench.exchange.center.vector.tolist() == [100.0]
    assert bench.exchange.poll().finished


def test_loss_budget_is_cut_by_snapshots_and_tests_and_goes_on_with_the_same_budget(tmp_path: Path) -> None:
    schedule = Schedule(40, snapshot=15, test_interval=8, test_initialization=False)
    bench = Bench(tmp_path, schedule, comm_period=LossBudget(10), n_test_nets=1, test_interval=8, snapshot=15)
    bench.run()
    for iteration in (15, 30, 40):
        center = tmp_path / "work" / "pending" / f"iter_{iteration}" / "center.f32"
        assert np.fromfile(center, np.float32).tolist() == [float(iteration)]
    assert bench.model.tested[::2] == [8.0, 16.0, 24.0, 32.0, 40.0]


def test_steps_of_a_period_that_no_exchange_ended_are_given_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(40), comm_period=LossBudget(10))
    bench.model.nans = {25}
    with pytest.raises(TrainingFailed):
        bench.run()
    n_done = int(bench.exchange.center.vector[0])
    assert 0 < n_done < 25
    assert bench.exchange.poll().acknowledged == n_done


def test_large_outputs_of_a_test_are_a_file_and_a_summary(tmp_path: Path) -> None:
    schedule = Schedule(4, test_interval=4, test_initialization=False)
    bench = Bench(tmp_path, schedule, n_test_nets=1, test_interval=4, outputs=tmp_path / "outputs")
    scores = np.arange(100_000, dtype=np.float32).reshape(100, 1000)
    outputs = {"ip/scores": scores, "few": np.float32([1.0, np.nan])}
    bench.model.test = lambda net, batches: (outputs for _ in batches)  # type: ignore[method-assign]
    bench.run()
    (event,) = bench.events("evaluation")
    assert len(event.to_json()) < 1_000
    assert event.data["few"] == [1.0, "nan"]
    file = event.data["ip/scores"]["file"]
    expected = {"shape": [100, 1000], "mean": 49_999.5, "min": 0.0, "max": 99_999.0, "file": file}
    assert event.data["ip/scores"] == expected
    with np.load(tmp_path / file) as arrays:
        assert np.array_equal(arrays["ip/scores"], scores)


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_run_that_is_stopped_early_saves_what_is_done(tmp_path: Path, overlaps: bool) -> None:
    bench = Bench(tmp_path, Schedule(1000, snapshot=500), comm_period=LossBudget(10), overlaps=overlaps)
    run = bench.model.run

    def run_and_stop(**arguments: object) -> StepReport:
        if arguments["step"] == 23:
            bench.exchange.coordinator.control("stop_early")
        return run(**arguments)  # type: ignore[arg-type]

    bench.model.run = run_and_stop  # type: ignore[method-assign]
    bench.batches.take = lambda max_steps: ({}, 1)  # type: ignore[method-assign]
    bench.run()
    status = bench.exchange.poll()
    assert status.finished
    assert 23 < status.acknowledged < 60
    assert status.snapshots == (status.acknowledged,)
    center = tmp_path / "work" / "pending" / f"iter_{status.acknowledged}" / "center.f32"
    assert np.fromfile(center, np.float32).tolist() == [float(status.acknowledged)]


def test_a_gradient_is_pushed_and_not_the_parameters_of_the_net_inside(tmp_path: Path) -> None:
    bench, net = Bench(tmp_path, Schedule(6), n_workers=2), CountingModel()
    net.value = np.float32([1_000.0])
    WorkerLoop(bench.model, bench.link, bench.batches, bench.plan, stabilised=net).run()
    assert 0 < bench.exchange.center.vector[0] <= 6


@pytest.mark.parametrize("overlaps", [False, True])
def test_the_point_before_the_look_ahead_is_exchanged(tmp_path: Path, overlaps: bool) -> None:
    """The model's history is 1 after every step: the parameters are 0.9 below the point seen by the center."""
    plan = StabiliserPlan(n_workers=2, look_ahead=0.9)
    bench = Bench(tmp_path, Schedule(6), n_workers=2, comm_period=CommPeriod(2), stabiliser=plan, overlaps=overlaps)
    exchange, pairs = bench.link.exchange, []

    def record(local: Vector, **options: Any) -> tuple[Vector, Any]:
        at_begin = float(local[0])
        exchanged, report = exchange(local, **options)
        pairs.append((at_begin, float(exchanged[0])))
        return exchanged, report

    bench.link.exchange = record  # type: ignore[method-assign]
    bench.run()
    parameters, moved = 0.0, 0.0
    for number, (at_begin, at_end) in enumerate(pairs):
        parameters += moved + 2
        assert at_begin == pytest.approx(parameters + 0.9, abs=1e-6), number
        moved = at_end - at_begin
    assert bench.model.value[0] == pytest.approx(parameters + moved, abs=1e-6)


def test_momentum_comes_from_the_center_after_the_first_exchange(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(6), n_workers=2, comm_period=CommPeriod(2), stabiliser=HALF)
    bench.link.use_moving_rate(0.5)
    bench.run()
    # By hand; the other worker is gone, so two minibatches move the center by one step. The model's steps add.
    local, center, centers = 0.0, 0.0, []
    for _ in range(3):
        local += 2
        pull = 0.5 * (local - center)
        local, center = local - pull, center + pull
        centers.append(center)
    velocities = [(old_center - new_center) * 2 / 2 for old_center, new_center in pairwise(centers)]
    mixed = [0.5 * 1 + 0.5 * velocity for velocity in velocities]
    assert [momentum for _, momentum in bench.model.momenta] == pytest.approx(mixed)


def run_at(folder: Path, rate_after: float, share: float) -> CountingModel:
    """Return the model of a run whose solver has another rate from minibatch 4 on."""
    plan = {"n_workers": 2, "comm_period": CommPeriod(2), "stabiliser": replace(HALF, momentum_from_center=share)}
    bench = Bench(folder, Schedule(8), solver_rate=lambda clock: 0.5 if clock < 4 else rate_after, **plan)
    bench.run()
    assert [step for step, _, _ in bench.model.calls] == [0, 2, 4, 6]
    return bench.model


def test_momentum_falls_with_the_rate_before_the_step_that_has_it(tmp_path: Path) -> None:
    falling, steady = (run_at(tmp_path / f"{rate}", rate, 0.5) for rate in (0.05, 0.5))
    velocities = [2 * (momentum - 0.5) for _, momentum in steady.momenta]
    # Exchanges end at 4, 6 and 8: the second reports movements at the large rate.
    mixed = [0.5 + 0.5 * by * velocity for by, velocity in zip((1, 0.1, 1), velocities, strict=True)]
    assert falling.momenta == [
        (n, pytest.approx(m)) for n, m in ((2, mixed[0]), (2, 0.1), (3, mixed[1]), (4, mixed[2]))
    ]
    assert run_at(tmp_path / "own", 0.05, 0.0).momenta == [], "workers with their own momentum are left alone"


def test_momentum_of_a_snapshot_falls_too(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        Schedule(8, first=4),
        n_workers=2,
        stabiliser=HALF,
        solver_rate=lambda clock: 0.5 if clock < 4 else 0.05,
    )
    bench.run()
    assert bench.model.momenta[0] == (0, pytest.approx(0.1))


def test_statistics_of_steps_beside_an_exchange_are_handed_over_once(tmp_path: Path) -> None:
    """Mean, variance and weight of one layer; the loop runs four steps of a period in two calls."""
    statistics = StatisticBlobs.from_json([[0, 1, 1, 2, 2, 0.5]])
    bench = Bench(tmp_path, Schedule(12, snapshot_after_train=False), n_workers=2, overlaps=True, statistics=statistics)
    settings = replace(bench.exchange.settings, n_params=3, statistics=statistics)
    exchange = LocalExchange(settings, np.float32([6.0, 8.0, 2.0]))
    link = exchange.link()
    link.join(0)
    bench.model.value = link.pull()
    batches = iter([(float(step), float(step % 5)) for step in range(12)])

    def run(*, step: int, n_steps: int, rate_scale: float, feeds: Feeds) -> StepReport:
        own_batches = [next(batches) for _ in range(n_steps)]
        bench.model.value = np.float32(slow_moving_sums(tuple(bench.model.value.tolist()), own_batches, 0.5))
        return StepReport(np.ones(n_steps, np.float32), np.ones(n_steps, np.float32))

    bench.model.run = run  # type: ignore[method-assign]
    assert WorkerLoop(bench.model, link, bench.batches, bench.plan, bench.model).run().exchanges == 3
    expected = slow_moving_sums((6.0, 8.0, 2.0), [(float(step), float(step % 5)) for step in range(12)], 0.5)
    np.testing.assert_allclose(exchange.center.vector, expected, rtol=1e-5)  # float32


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_worker_of_elastic_averaging_takes_the_center_a_few_times(tmp_path: Path, overlaps: bool) -> None:
    bench = Bench(tmp_path, Schedule(40), n_workers=2, most_new_starts=2, overlaps=overlaps, display=1)
    bench.model.nans = {5, 22}
    bench.run()
    starts = bench.model.starts
    assert len(starts) == 2
    assert starts[0] < 5.0, "the center is behind the worker"
    assert np.isfinite(bench.exchange.center.vector).all()
    assert bench.exchange.poll().acknowledged == 40
    notes = [event for event in bench.events("note") if event.data.get("warning")]
    assert [event.data["text"] for event in notes] == [
        f"worker 0: loss is nan at minibatch {clock}; the worker begins again at the center, with an empty solver"
        f" history ({turn} of at most 2 times)"
        for turn, clock in ((1, 5), (2, 22))
    ]


def test_the_next_loss_that_is_not_finite_ends_the_run_as_ever(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(10), most_new_starts=1)
    bench.model.nans = {2, 7}
    with pytest.raises(TrainingFailed, match=r"^worker 0: loss is nan at minibatch 7 \(learning_rate=0.5 = .*"):
        bench.run()
    assert len(bench.model.starts) == 1


def test_a_center_that_is_not_finite_ends_the_run_at_the_first_such_loss(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(10), most_new_starts=3)
    bench.model.nans = {2}
    bench.exchange.center.vector[0] = np.nan
    with pytest.raises(TrainingFailed, match="worker 0: loss is nan at minibatch 2"):
        bench.run()
    assert bench.model.starts == []


def test_parameters_that_are_not_finite_are_not_pushed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Schedule(10), n_workers=2, most_new_starts=3)
    run = bench.model.run

    def run_and_overflow(**arguments: Any) -> StepReport:
        report = run(**arguments)
        if arguments["step"] == 4:
            bench.model.value = np.array([np.inf], np.float32)
        return report

    bench.model.run = run_and_overflow  # type: ignore[method-assign]
    bench.run()
    (note,) = [event.data["text"] for event in bench.events("note")]
    assert note.startswith(
        "worker 0: parameters are not finite after minibatch 7; the worker begins again at the center, "
    )
    assert len(bench.model.starts) == 1
    assert bench.exchange.poll().refused_pushes == (0, 0)
    assert bench.exchange.poll().acknowledged == 10
