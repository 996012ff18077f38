"""A worker from start to end, inside a Spark task; knows TensorFlow through ``tf_model``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from deepspark_ops.events import make_event
from deepspark_ops.exchange.transport.link import Welcome, WorkerLink
from deepspark_ops.train.data.batch_source import BatchSource
from deepspark_ops.train.data.batches import LeasedBatches, Ring
from deepspark_ops.train.data.device_batches import DeviceBatches
from deepspark_ops.train.data.repeated_data import RepeatedBatches
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.run_setup import load_run
from deepspark_ops.train.setup.strategy_plan import plan_strategy
from deepspark_ops.train.snapshots.start import with_restored_step
from deepspark_ops.train.snapshots.state_file import read_worker_state
from deepspark_ops.train.worker.ending import to_its_end
from deepspark_ops.train.worker.fault_file import note_reads
from deepspark_ops.train.worker.gradient_models import model_for, works_on_gradients
from deepspark_ops.train.worker.loop import WorkerLoop, WorkerSummary
from deepspark_ops.train.worker.loop_plan import LoopPlan
from deepspark_ops.train.worker.outcome import WorkerOutcome
from deepspark_ops.train.worker.task import WorkerTask, loop_plan, with_state
from deepspark_ops.train.worker.tf_devices import devices_event, set_up_worker
from deepspark_ops.train.worker.tf_model import TfModel


def run_worker(task: WorkerTask, link: WorkerLink) -> WorkerOutcome:
    """Run a worker to the end of the run; the link is left and closed. See ``to_its_end``."""
    return to_its_end(task.worker, link, lambda welcome: _train(task, link, welcome))


def _train(task: WorkerTask, link: WorkerLink, welcome: Welcome) -> WorkerOutcome:
    if task.fault_before:
        note = f"its process before ended by {task.fault_before}"
        link.send_event(make_event("note", clock=welcome.clock, worker=task.worker, text=note, warning=True))
    run = with_restored_step(load_run(task.run_dir), task.start_state)
    try:
        note_reads(run.paths.work, task.worker, _reads(run))
        is_first = task.attempt == 0
        state = read_worker_state(task.start_state, task.worker) if is_first and task.start_state else None
        if not is_first:
            note = f"start {task.attempt + 1} of this worker: it takes the center and an empty solver history"
            link.send_event(make_event("note", clock=welcome.clock, worker=task.worker, text=note))
        strategy = plan_strategy(run.config).running
        devices, used = set_up_worker(task.devices, run.config, run.plan.n_devices)
        link.send_event(devices_event(devices, used, clock=welcome.clock, worker=task.worker))
        model = TfModel(
            run,
            worker=task.worker,
            pull=link.pull,
            state=state,
            devices=devices,
            in_parts=works_on_gradients(strategy),
            others_wait=strategy.round == "all" and run.config.n_workers > 1,
        )
        plan = with_state(loop_plan(run, task.worker, task.origin), state, attempt=task.attempt)
        summary = run_loop(run, link, model, plan, first_step=model.updates if is_first else welcome.clock)
        return WorkerOutcome(task.worker, "finished", "", summary.steps, summary.exchanges)
    finally:
        run.binding.close()


def _reads(run: Run) -> list[str]:
    """Return the data of a run in a few words: the dataset, and the nets' own sources."""
    nets = (run.train_layers(), *run.test_layers())
    sources = [layer.samples.dataset for layers in nets for layer in layers]
    net_sources = [source.shards[0].name for source in sources if source.manifest is None and source.shards]
    dataset = [] if run.config.dataset is None else [f"dataset {run.config.dataset}"]
    return [*dataset, *net_sources]


def run_loop(
    run: Run, link: WorkerLink, model: TfModel, plan: LoopPlan, *, first_step: int, shared: Ring | None = None
) -> WorkerSummary:
    """Run the worker loop to the end of the run, with batches and the strategy's wrapper of ``model``.

    Args:
        run: The run.
        link: A joined link.
        model: Holds the worker's parameters and state at the start.
        plan: Of this worker.
        first_step: Steps that the worker has already made.
        shared: As in ``LeasedBatches``.
    """
    strategy = plan_strategy(run.config).running
    with LeasedBatches(
        link,
        run.train_layers(),
        run.test_feeds(),
        iter_size=run.solver.iter_size,
        seed=run.random_seed,
        worker=plan.worker,
        first_step=first_step,
        drawn=run.train_drawn(),
        n_steps=plan.comm_period.value if strategy.repeats_data else None,
        shared=shared,
    ) as leased:
        source: AbstractContextManager[BatchSource] = _at_the_model(leased, model)
        if strategy.repeats_data:
            source = nullcontext(RepeatedBatches(leased, plan.comm_period.value, run.solver.iter_size))
        with source as batches:
            return WorkerLoop(model_for(strategy, model, link), link, batches, plan).run()


@contextmanager
def _at_the_model(leased: LeasedBatches, model: TfModel) -> Iterator[BatchSource]:
    """Yield batches on the model's device: for another device than the host's CPU a thread copies them ahead."""
    if model.is_on_host:
        yield leased
        return
    ahead = DeviceBatches(leased, model.to_device, iter_size=model.n_passes)
    try:
        yield ahead
    finally:
        ahead.close()
