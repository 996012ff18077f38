"""The loop of every worker: ask for a grant, compute, exchange, return the grant. No framework and no socket.

The loop sees a ``Model`` (the compiled net), a ``WorkerLink`` (the way to server and center) and a ``BatchSource``.
The loop is the same for all six solver types and for any number of workers. With a single worker the loop is Caffe's
``Solver::Step`` (BVLC Caffe @9b89154, src/caffe/solver.cpp): test, display and snapshot come before an iteration's
update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from caffe_import.devices.loss_scale import StepScales
from deepspark_ops.errors import PushRefused, TrainingFailed
from deepspark_ops.exchange.comm_period import scheduled
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.state.grants import Finished, Grant
from deepspark_ops.exchange.transport.link import ExchangeReport, WorkerLink
from deepspark_ops.param_vector import Vector
from deepspark_ops.train.data.batch_source import BatchSource
from deepspark_ops.train.worker.loop.background_exchange import BackgroundExchange
from deepspark_ops.train.worker.loop.center_tests import CenterTests
from deepspark_ops.train.worker.loop.center_watch import CenterWatch
from deepspark_ops.train.worker.loop.grant_requests import GrantRequests
from deepspark_ops.train.worker.loop.loop_plan import LoopPlan
from deepspark_ops.train.worker.loop.progress import ProgressLines
from deepspark_ops.train.worker.net.model import Model, StepReport
from deepspark_ops.train.worker.rates.rate_scale import PresentRateScale
from deepspark_ops.train.worker.rates.stabiliser import StabilisedModel, Stabiliser

SAMPLE = 512
"""Parameters, evenly spaced, that are examined before an exchange: a net that diverges has few finite numbers."""


@dataclass(frozen=True)
class WorkerSummary:
    """A worker's counts for the driver."""

    worker: int
    steps: int
    exchanges: int
    last_loss: float


class WorkerLoop:
    """Runs a worker to the end of the run. Used by a single thread; ``run`` is called once."""

    def __init__(
        self, model: Model, link: WorkerLink, batches: BatchSource, plan: LoopPlan, stabilised: StabilisedModel
    ) -> None:
        """Take a joined link and a model with the center's parameters, or with the worker's saved parameters.

        ``stabilised`` is the compiled net: ``model`` itself, or the net inside.
        """
        self._model = model
        self._link = link
        self._batches = batches
        self._plan = plan
        self._now = plan.time.now
        self._progress = ProgressLines(plan, link)
        self._tests = CenterTests(model, link, batches, plan, self._progress)
        self._background = BackgroundExchange(link, plan.statistics, plan.time.thread()) if plan.overlaps else None
        self._grants = GrantRequests(link, plan)
        self._held: list[Grant] = []  # computed, not yet exchanged and acknowledged
        self._exchanging: list[Grant] = []  # the exchange runs in the background
        self._was_idle = True  # rounds may have gone on since the model pulled its parameters
        self._rate_scale = PresentRateScale(plan.rate_scale)
        self._last_rate = 0.0
        self._last_clock = 0
        self._last_report: StepReport | None = None
        self._watch: CenterWatch | None = None
        self._n_new_starts = 0
        self._moving_rate = scheduled(plan.moving_rates, 0) if plan.moving_rates else 0.0
        self._stabiliser = Stabiliser(plan.stabiliser, stabilised, self._rate_at, plan.solver_rate)
        if self._stabiliser.needs_center:
            link.report_center()

    def run(self) -> WorkerSummary:
        """Work until the server reports the end of the run.

        Raises:
            TrainingFailed: The loss stopped being finite, the strategy does not search, and the worker cannot begin
                again at the center; the vector behind this loss is not pushed. Or the center refused a push: so a net
                with a bounded loss diverges.
            ExchangeUnavailable: The server stayed silent; the worker may be started again.
        """
        try:
            self._run()
        finally:
            self._grants.close()
            if self._background is not None:
                self._background.close()
        progress = self._progress
        if self._last_report is not None:
            self._model.write_outputs(-1)
            progress.finish(self._last_clock, self._last_report)
        progress.send_fetched(self._last_clock)
        return WorkerSummary(self._plan.worker, progress.n_steps, progress.n_exchanges, progress.last_loss)

    def _run(self) -> None:
        while True:
            requested_at = self._now()
            answer = self._grants.next()
            if isinstance(answer, Grant):
                self._work(answer, self._now() - requested_at)
                continue
            # This worker's steps may be the only missing steps.
            if not self._exchange_rest():
                if isinstance(answer, Finished):
                    return
                self._plan.time.sleep(answer.seconds)
                self._was_idle = self._was_idle or not answer.is_expected
            self._progress.sums.aside_s += self._now() - requested_at

    def _work(self, grant: Grant, request_s: float) -> None:
        began = self._now()
        self._rate_scale.see(grant.start, grant.live_workers)
        if self._watch is None and self._plan.watch is not None:
            self._watch = CenterWatch(self._plan.watch, grant.start)
        self._prepare(grant)
        self._progress.sums.aside_s += self._now() - began
        if grant.count and self._was_idle and self._plan.waits_in_rounds:
            self._model.replace_local(self._link.pull())  # the others went on without this worker
        self._was_idle = False
        compute_s = self._compute(grant) if grant.count else 0.0
        began = self._now()
        waited_s = self._give_back(grant)
        exchange_s = request_s + self._now() - began
        self._progress.sums.exchange_s += exchange_s
        reason = self._plan.comm_period.observe(
            n_steps=grant.count, compute_s=compute_s, exchange_s=exchange_s - waited_s
        )
        self._progress.note(grant.stop, reason)

    def _prepare(self, grant: Grant) -> None:
        """Send the state for a snapshot, run tests and follow the schedules, before the steps."""
        if grant.state_for or grant.tests:
            self._exchange_rest()
        if grant.state_for:
            meta, arrays = replace(self._model.state(), stabiliser=self._stabiliser.state()).to_parts()
            self._link.send_state(grant.state_for, {**meta, "leases": self._batches.leases()}, arrays)
        if grant.tests:
            self._tests.run(grant.start)
        self._progress.note(grant.start, self._plan.comm_period.reach(grant.start))
        self._follow_moving_rate(grant.start)

    def _follow_moving_rate(self, clock: int) -> None:
        if not self._plan.moving_rates:
            return
        old_rate, self._moving_rate = self._moving_rate, scheduled(self._plan.moving_rates, clock)
        if self._moving_rate != old_rate:
            self._link.use_moving_rate(self._moving_rate)
            self._progress.note(clock, f"moving_rate {self._moving_rate:g}: as scheduled from minibatch {clock} on")

    def _compute(self, grant: Grant) -> float:
        """Run the granted steps; return the seconds spent computing."""
        step, compute_s = grant.start, 0.0
        while step < grant.stop:
            began = self._now()
            feeds, n_steps = self._batches.take(grant.stop - step)
            if n_steps == 0:  # another worker has done these steps, and the run has ended
                break
            ready = self._now()
            if step + n_steps == grant.stop:
                self._grants.ask_ahead()
            note = self._stabiliser.before_steps(step, n_steps, feeds)
            self._progress.note(step, note if self._plan.worker == 0 else None)  # one worker writes the line
            report = self._model.run(step=step, n_steps=n_steps, rate_scale=self._rate_scale.at(step), feeds=feeds)
            ended = self._now()
            compute_s += ended - ready
            self._progress.begin_block(began, ready, ended, n_steps=len(report.losses))
            self._account(step, report)
            step += n_steps
        return compute_s

    def _rate_at(self, clock: int) -> float:
        return self._plan.solver_rate(clock) * self._rate_scale.at(clock)

    def _account(self, first: int, report: StepReport) -> None:
        losses = report.losses.tolist()
        self._last_clock, self._last_report = first + len(losses), report
        if not (self._plan.searches or np.isfinite(losses).all()):
            bad = int(np.argmin(np.isfinite(losses)))
            if not self._begin_again(first + bad, f"loss is {losses[bad]} at minibatch {first + bad}"):
                raise self._divergence(first + bad, losses[bad], report.learning_rates[bad])
        for offset, loss in enumerate(losses):
            self._last_rate = float(report.learning_rates[offset])
            if report.scales is not None:
                self._follow_loss_scale(first + offset, report.scales, offset)
            if self._progress.step_done(first + offset, loss):
                self._model.write_outputs(offset)
                self._progress.show(first + offset, report, offset)
        self._plan.comm_period.spend(losses)

    def _begin_again(self, clock: int, finding: str) -> bool:
        """Take the center after a divergence, and report so; False if the worker may not, or the center diverges, too.

        The minibatches since the last exchange are lost, and count as done: the next exchange acknowledges them.
        """
        if self._n_new_starts >= self._plan.most_new_starts:
            return False
        self._take_exchanged()
        center = self._link.pull()
        if not np.isfinite(center).all():
            return False
        self._n_new_starts += 1
        self._model.start_at(center)
        text = (
            f"worker {self._plan.worker}: {finding}; the worker begins again at the center, with an empty solver"
            f" history ({self._n_new_starts} of at most {self._plan.most_new_starts} times)"
        )
        self._progress.send("note", clock, text=text, warning=True)
        return True

    def _follow_loss_scale(self, clock: int, scales: StepScales, offset: int) -> None:
        if scales.is_exhausted(offset):
            msg = (
                f"worker {self._plan.worker}: the gradient at minibatch {clock} is not finite in float16, even with"
                f" loss_scale={scales.begun[offset]:g}; use precision=bfloat16 or float32, or lower base_lr"
            )
            raise TrainingFailed(msg)
        self._progress.note(clock, scales.note(offset))

    def _give_back(self, grant: Grant) -> float:
        """Exchange after the grant's steps, if due; return the seconds of waiting for others.

        A grant without an exchange is held: an acknowledged grant's steps are in the center.
        """
        period = self._plan.comm_period
        if not grant.count or (period.only_measures and not period.is_due):
            self._grants.exchanged([grant])
            return 0.0
        self._held.append(grant)
        if not period.is_due and not self._plan.is_snapshot(grant.stop):
            return 0.0
        if self._watch is not None and self._watch.is_due(grant.stop):
            self._look_at_center(self._watch, grant.stop)
        if self._background is not None:
            self._exchange_in_background(self._background)
            return 0.0
        return self._exchange_held()

    def _look_at_center(self, watch: CenterWatch, clock: int) -> None:
        """Send an event of the watch; the time counts neither as exchange nor for the rate of images."""
        self._take_exchanged()
        began = self._now()
        self._progress.send("watch", clock, **watch.event_data(clock, self._link.look(), self._model.local()))
        watched_s = self._now() - began
        self._progress.sums.aside_s += watched_s
        self._progress.sums.exchange_s -= watched_s

    def _exchange_held(self) -> float:
        """Exchange the held grants; return the seconds of waiting for others."""
        grants = self._end_period()
        clock = grants[-1].stop
        note = self._model.round_note() or self._period_note()
        is_near = self._progress.is_line_near(clock)
        if self._plan.most_new_starts:
            sample = self._model.local()[:: self._model.local().size // SAMPLE + 1]
            if not np.isfinite(sample).all():
                self._begin_again(clock - 1, f"parameters are not finite after minibatch {clock - 1}")
        try:
            vector = self._stabiliser.vector_to_exchange(self._model.local())
            exchanged, report = self._link.exchange(vector, measure_distance=is_near, note=note)
        except PushRefused as error:
            raise self._refused(grants, error) from error
        self._take(grants, self._stabiliser.parameters_of(exchanged), report)
        return report.round_end.waited_s

    def _exchange_rest(self) -> bool:
        """Exchange and acknowledge all steps that the center lacks; return whether the center lacked steps."""
        self._take_exchanged()
        if self._held:
            self._exchange_held()
        return self._grants.acknowledge()

    def _end_period(self) -> list[Grant]:
        """Return the grants of the ending period, and begin the next period."""
        grants, self._held = self._held, []
        self._progress.note(grants[-1].stop, self._plan.comm_period.exchanged())
        return grants

    def _period_note(self) -> RoundNote | None:
        proposal = self._plan.comm_period.proposal
        return RoundNote(comm_period=proposal) if proposal else None

    def _exchange_in_background(self, background: BackgroundExchange) -> None:
        """Finish the exchange before, and exchange the held grants while the next grant is computed."""
        self._take_exchanged()
        grants = self._end_period()
        self._grants.fetch()
        background.start(self._reader_of_vector(), measure_distance=self._progress.is_line_near(grants[-1].stop))
        self._exchanging = grants

    def _reader_of_vector(self) -> Callable[[], Vector]:
        """Return a function for another thread that returns the present vector to exchange."""
        if not self._plan.stabiliser.look_ahead:
            return self._model.reader_of_local()
        vector = self._stabiliser.vector_to_exchange(self._model.local())
        return lambda: vector

    def _take_exchanged(self) -> None:
        """Wait for a running exchange and apply the exchange to the model's present parameters."""
        grants, self._exchanging = self._exchanging, []
        if not grants or self._background is None:
            return
        try:
            local, report = self._background.finish(self._model.local())
        except PushRefused as error:
            raise self._refused(grants, error) from error
        self._take(grants, local, report)

    def _refused(self, grants: list[Grant], error: PushRefused) -> TrainingFailed:
        return self._divergence(grants[-1].stop - 1, self._progress.last_loss, self._last_rate, f"; {error}")

    def _take(self, grants: list[Grant], local: Vector, report: ExchangeReport) -> None:
        self._model.replace_local(local)
        n_steps = sum(grant.count for grant in grants)
        self._stabiliser.after_exchange(report.center, grants[-1].stop, n_steps, grants[-1].live_workers)
        self._progress.note(grants[-1].stop, self._plan.comm_period.agree(report.round_end.comm_period))
        self._progress.note(grants[-1].stop, report.remark)
        self._progress.exchanged(report)
        self._grants.exchanged(grants)

    def _divergence(self, clock: int, loss: float, learning_rate: float, refusal: str = "") -> TrainingFailed:
        return TrainingFailed(
            f"worker {self._plan.worker}: loss is {loss} at minibatch {clock} (learning_rate={learning_rate:.6g} ="
            f" base_lr={self._plan.base_lr:g} by its policy, times rate_scale={self._rate_scale.at(clock):g}){refusal};"
            " the steps are too large: lower base_lr in the solver, or set rate_scale to none or a smaller number"
        )
