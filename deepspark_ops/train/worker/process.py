"""A worker from start to end, inside a Spark task; knows TensorFlow through ``tf_model``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from caffe_import.errors import CaffeImportError
from caffe_import.tf_graph.devices import ReadyDevices
from deepspark_ops.errors import DataError
from deepspark_ops.events import make_event
from deepspark_ops.exchange.transport.link import Welcome, WorkerLink
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.data.batch_source import BatchSource
from deepspark_ops.train.data.batches import LeasedBatches, Ring
from deepspark_ops.train.data.device_batches import DeviceBatches
from deepspark_ops.train.data.repeated_data import RepeatedBatches
from deepspark_ops.train.host_files.on_host import hidden_sources, local_state, reading_note
from deepspark_ops.train.host_files.sent_files import files_sent
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.run_setup import load_run, read_config
from deepspark_ops.train.setup.side_outputs import refuse_lost_outputs
from deepspark_ops.train.setup.strategy_plan import plan_strategy
from deepspark_ops.train.snapshots.start import with_restored_step
from deepspark_ops.train.snapshots.state_file import read_worker_state
from deepspark_ops.train.snapshots.worker_state import WorkerState
from deepspark_ops.train.worker.ending import to_its_end
from deepspark_ops.train.worker.fault_file import FAULTS, note_reads
from deepspark_ops.train.worker.loop.host_load import HostLoad
from deepspark_ops.train.worker.loop.loop import WorkerLoop
from deepspark_ops.train.worker.loop.loop_plan import LoopPlan
from deepspark_ops.train.worker.net.gradient_models import model_for, works_on_gradients
from deepspark_ops.train.worker.net.tf_devices import devices_event, set_up_worker
from deepspark_ops.train.worker.net.tf_model import TfModel
from deepspark_ops.train.worker.outcome import WorkerOutcome
from deepspark_ops.train.worker.task import WorkerTask, loop_plan, with_state


def run_worker(task: WorkerTask, link: WorkerLink) -> WorkerOutcome:
    """Run a worker to the end of the run; the link is left and closed. See ``to_its_end``."""
    return to_its_end(task.worker, link, lambda welcome: _train(task, link, welcome))


def _train(task: WorkerTask, link: WorkerLink, welcome: Welcome) -> WorkerOutcome:
    fault = f"its process before ended by {task.fault_before}" if task.fault_before else ""

    def warn(text: str) -> None:
        link.send_event(make_event("note", clock=welcome.clock, worker=task.worker, text=text, warning=True))

    for note in filter(None, (fault, task.version_note)):
        warn(note)
    run, start_state = _run_on_host(task)
    try:
        run = with_restored_step(run, start_state)
        _send_reading_note(run, link, task.worker, welcome.clock)
        refuse_lost_outputs((run.train_net, *run.test_nets), run.paths.outputs, run.config.run_dir)
        note_reads(run.paths.work, task.worker, _reads(run))
        state = read_worker_state(start_state, task.worker) if start_state and not task.attempt else None
        devices, used = set_up_worker(task.devices, run.config, run.plan.n_devices)
        link.send_event(devices_event(devices, used, clock=welcome.clock, worker=task.worker))
        plan = with_state(loop_plan(run, task.worker, task.origin), state, attempt=task.attempt)
        sent = files_sent(task.driver_files, task.run_dir, (run.paths.outputs, run.paths.work / FAULTS), warn)
        with closing(HostLoad(task.run_dir)) as host_load, sent:
            plan = replace(plan, host_load=host_load, has_pulse=True)
            return train_worker(run, link, plan, devices, attempt=task.attempt, clock=welcome.clock, state=state)
    finally:
        run.binding.close()


def _run_on_host(task: WorkerTask) -> tuple[Run, Path | None]:
    """Return the run and the start state; what the host does not see comes from the driver."""
    files, state = task.driver_files, task.start_state
    try:
        run = load_run(task.run_dir, has_driver_files=files is not None)
    except (CaffeImportError, DataError) as error:
        if files is None or read_config(RunPaths(task.run_dir).config).dataset is not None:
            raise
        raise hidden_sources(error) from error
    if files is None or files.hidden_run is None or state is None or state.is_relative_to(task.run_dir):
        return run, state
    return run, local_state(state, files)


def _send_reading_note(run: Run, link: WorkerLink, worker: int, clock: int) -> None:
    layers = [*run.train_layers(), *(layer for net in run.test_layers() for layer in net)]
    manifests = {id(layer.samples): layer.samples.dataset.manifest for layer in layers}
    n_bytes = sum(manifest.n_bytes for manifest in manifests.values() if manifest is not None)
    text, is_warning = reading_note(run.config.dataset, n_bytes)
    if text:
        data = {"text": text, "warning": True} if is_warning else {"text": text}
        link.send_event(make_event("note", clock=clock, worker=worker, **data))


def train_worker(
    run: Run,
    link: WorkerLink,
    plan: LoopPlan,
    devices: ReadyDevices,
    *,
    attempt: int,
    clock: int,
    state: WorkerState | None = None,
    model_type: Callable[..., TfModel] = TfModel,
    shared: Ring | None = None,
) -> WorkerOutcome:
    """Make the model of a worker, and train to the end of the run.

    Args:
        run: The run.
        link: A joined link.
        plan: The worker's plan.
        devices: The worker's devices.
        attempt: Earlier starts of the worker.
        clock: The clock as the worker joined.
        state: The worker's state from a snapshot; None to begin with an empty state.
        model_type: ``TfModel``, or a function with the same arguments.
        shared: As in ``LeasedBatches``.
    """
    if attempt:
        note = f"start {attempt + 1} of this worker: it takes the center and an empty solver history"
        link.send_event(make_event("note", clock=clock, worker=plan.worker, text=note))
    strategy = plan_strategy(run.config).running
    model = model_type(
        run,
        worker=plan.worker,
        pull=link.pull,
        state=state,
        devices=devices,
        in_parts=works_on_gradients(strategy),
        others_wait=strategy.round == "all" and run.config.n_workers > 1,
    )
    with LeasedBatches(
        link,
        run.train_layers(),
        run.test_feeds(),
        iter_size=run.solver.iter_size,
        seed=run.random_seed,
        worker=plan.worker,
        first_step=clock if attempt else model.updates,
        drawn=run.train_drawn(),
        n_steps=plan.comm_period.value if strategy.repeats_data else None,
        shared=shared,
    ) as leased:
        source: AbstractContextManager[BatchSource] = _at_the_model(leased, model)
        if strategy.repeats_data:
            source = nullcontext(RepeatedBatches(leased, plan.comm_period.value, run.solver.iter_size))
        with source as batches:
            summary = WorkerLoop(model_for(strategy, model, link), link, batches, plan, stabilised=model).run()
    return WorkerOutcome(plan.worker, "finished", "", summary.steps, summary.exchanges)


def _reads(run: Run) -> list[str]:
    """Return the data of a run in a few words: the dataset, and the nets' own sources."""
    nets = (run.train_layers(), *run.test_layers())
    sources = [layer.samples.dataset for layers in nets for layer in layers]
    net_sources = [source.shards[0].name for source in sources if source.manifest is None and source.shards]
    dataset = [] if run.config.dataset is None else [f"dataset {run.config.dataset}"]
    return [*dataset, *net_sources]


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
