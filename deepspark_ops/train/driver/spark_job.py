"""Training as a Spark application: each worker is a task. ``training`` is the rest of the driver.

The driver never imports TensorFlow. Started as ``python -m deepspark_ops.train.driver.spark_job CONFIG.json`` or by
spark-submit with the same file.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import Accumulator, SparkContext, SparkStageInfo
from pyspark.accumulators import AddingAccumulatorParam

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.devices.in_task import ONE_THREAD
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.devices.spark_resources import gpu_properties
from deepspark_ops.driver_files.file_server import FileServer
from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.processes.cluster_network import stays_in_process
from deepspark_ops.processes.spark_context import start_context
from deepspark_ops.processes.spark_failure import jvm_has_ended, spark_failure
from deepspark_ops.processes.spark_submit import spark_conf
from deepspark_ops.processes.stage_process import stage_main
from deepspark_ops.train.driver.run_signals import RunSignals
from deepspark_ops.train.driver.served_files import shipped_settings, start_file_server
from deepspark_ops.train.driver.training import Workers, train
from deepspark_ops.train.driver.worker_slots import Slots
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.run_setup import read_config
from deepspark_ops.train.snapshots.start import (
    SPARK_SCRATCH,
)
from deepspark_ops.train.worker.outcome import WorkerOutcome
from deepspark_ops.train.worker.starts import has_start

_SPARK_START_S = 300.0
_CANCEL_S = 10.0
_STOPPED_S = 5.0
"""How long a job may take to report the end of its application."""
_MAX_FAILURES = 1_000_000
_YARN_PROXY = "spark.org.apache.hadoop.yarn.server.webproxy.amfilter.AmIpFilter.param.PROXY_URI_BASES"


def main(config_path: Path) -> None:
    """Run the stage.

    Raises:
        DeepSparkError, CaffeImportError: One message for the user.
    """
    signals = RunSignals()
    config = read_config(config_path)
    if config.engine == "process":
        msg = "engine=process: this is the Spark application of a training; leave engine out, or run the process_job"
        raise ConfigError(msg)
    train(config, signals, SparkWorkers)


class SparkWorkers(Workers):
    """A Spark application with a single job: started in the background, stopped at the end. Used by a single thread."""

    def __init__(self, run: Run, devices: RunDevices, listen_address: str) -> None:
        """Begin to start Spark with the driver on ``listen_address``; ``submit`` waits for Spark."""
        self._run = run
        self._devices = devices
        self._listen_address = listen_address
        self._context: SparkContext | None = None
        self._error: Exception | None = None
        self._plain: list[dict[str, Any]] = []
        self._ended: Accumulator[tuple[dict[str, Any], ...]] | None = None
        self._scratch = run.paths.work / SPARK_SCRATCH
        self._scratch.mkdir(parents=True, exist_ok=True)
        # Python starts a JVM: several seconds in which the exchange gets ready.
        self._starter = self._in_background(self._start)
        self._job: threading.Thread | None = None
        self._files: FileServer | None = None

    def __enter__(self) -> SparkWorkers:
        """Return itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Cancel running tasks and stop Spark; no process stays behind."""
        self._starter.join(_SPARK_START_S)
        if self._context is not None:
            # A JVM that was killed with this process does not answer.
            with suppress(Py4JError, OSError):
                self._context.cancelAllJobs()
                self._context.stop()
        if self._job is not None:
            self._job.join(_CANCEL_S)
        if self._files is not None:
            self._files.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def await_start(self) -> None:
        """See ``Workers``."""
        self._starter.join(_SPARK_START_S)
        if isinstance(self._error, ConfigError):
            raise self._error

    def pages(self) -> str:
        """See ``Workers``."""
        if self._context is None or not self._run.config.spark_ui:
            return ""
        settings = dict(self._context.getConf().getAll())
        return ui_address(self._context.uiWebUrl, self._context.applicationId, settings)

    def submit(self, settings: Mapping[str, Any]) -> None:
        """See ``Workers``."""
        self._starter.join(_SPARK_START_S)
        if self._error is not None:
            raise self._error
        if self._context is None:
            msg = f"Spark with master={self._run.config.master} was not ready after {_SPARK_START_S:g} s"
            raise TrainingFailed(msg)
        context = self._context
        if not stays_in_process(self._run.config.master):
            self._files = start_file_server(self._run, settings["address"], settings["start_state"])
        shipped = shipped_settings(self._run.paths, settings, self._files)
        self._job = self._in_background(lambda: self._run_tasks(context, {**settings, **shipped}))

    def _run_tasks(self, context: SparkContext, settings: Mapping[str, Any]) -> None:
        n_workers = self._run.config.n_workers
        # The job's result comes when its last task has ended, an accumulator's value after each task.
        self._ended = context.accumulator((), AddingAccumulatorParam(()))
        work = _worker_task(settings, self._ended)
        tasks = context.parallelize(range(n_workers), n_workers).mapPartitionsWithIndex(work)
        self._plain.extend(tasks.collect())

    def slots(self) -> Slots | None:
        """See ``Workers``."""
        if self._context is None:
            return None
        try:
            tracker = self._context.statusTracker()
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            stages = [stage for stage in infos if stage is not None]
            self._check_starts(self._context, stages)
            if stays_in_process(self._run.config.master):
                return None  # a local master has been given a slot for each worker
            n_running = sum(stage.numActiveTasks for stage in stages)
            return Slots(n_running, _offered_slots(self._context), _n_executors(self._context))
        except (Py4JError, OSError):
            return None  # a JVM that has ended has another message

    def _check_starts(self, context: SparkContext, stages: Sequence[SparkStageInfo]) -> None:
        """Refuse to go on if tasks fail before a worker's code runs: Spark would start the tasks again for ever."""
        config, n_failed = self._run.config, sum(stage.numFailedTasks for stage in stages)
        if n_failed <= config.worker_tries * config.n_workers or has_start(self._run.paths.work):
            return
        why = spark_failure(RuntimeError(_last_failure(context, stages)), master=config.master, task="worker")
        msg = f"Spark started workers' tasks {n_failed} times, and none came as far as the worker's code: {why}"
        raise TrainingFailed(msg)

    def is_busy(self, timeout_s: float) -> bool:
        """See ``Workers``."""
        assert self._job is not None, "submit comes first"
        self._job.join(timeout_s)
        if not self._job.is_alive() or not _has_stopped(self._context):
            return self._job.is_alive()
        # A job that is submitted while Spark stops the application waits for ever.
        self._job.join(_STOPPED_S)
        if self._job.is_alive() and self._error is None:
            self._error = RuntimeError("SparkContext was shut down")
        return False

    def ended(self) -> list[WorkerOutcome]:
        """See ``Workers``."""
        return [] if self._ended is None else [WorkerOutcome(**plain) for plain in self._ended.value]

    def outcomes(self) -> list[WorkerOutcome]:
        """See ``Workers``."""
        if self._error is not None:
            why = spark_failure(
                self._error, master=self._run.config.master, task="worker", has_stopped=_has_stopped(self._context)
            )
            if jvm_has_ended(self._error):
                msg = f"{why}: the same command goes on from the last snapshot"
            else:
                msg = f"Spark gave the training job up: {why}"
            raise TrainingFailed(msg) from self._error
        return [WorkerOutcome(**plain) for plain in self._plain]

    def _in_background(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - the thread's outermost loop; the main thread raises it
                self._error = error

        thread = threading.Thread(target=run, name="spark", daemon=True)
        thread.start()
        return thread

    def _start(self) -> None:
        config = self._run.config
        # The variable and not spark.local.dir, which Spark answers with a warning in every log.
        os.environ.setdefault("SPARK_LOCAL_DIRS", str(self._scratch))
        self._context = start_context(
            master_for(config.master, n_workers=config.n_workers),
            _properties(config),
            listen_address=self._listen_address,
            insecure_network=config.insecure_network,
            further=lambda settings: gpu_properties(
                config.master, settings, self._devices.requested, n_workers=config.n_workers
            ),
            has_python_tasks=True,
        )


def _offered_slots(context: SparkContext) -> int | None:
    """Return the number of concurrent tasks by the executors' cores and GPUs; None if Spark gives no number."""
    spark = context._jsc.sc()
    try:
        return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))
    except Py4JError:  # Spark's own method, which another release may not have
        return None


def _has_stopped(context: SparkContext | None) -> bool:
    """Return whether Spark has ended the application; a silent JVM has a message of its own."""
    try:
        return context is not None and bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return False


def _last_failure(context: SparkContext, stages: Sequence[SparkStageInfo]) -> str:
    """Return Spark's message for the first failed task of these stages."""
    store = context._jsc.sc().statusStore()
    for stage in stages:
        tasks = store.taskList(stage.stageId, stage.currentAttemptId, _MAX_FAILURES)
        for message in (tasks.apply(index).errorMessage() for index in range(tasks.size())):
            if message.isDefined():
                return str(message.get())
    return "Spark does not say why"


def _n_executors(context: SparkContext) -> int:
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is among them


def ui_address(bound: str | None, application: str, settings: Mapping[str, str]) -> str:
    """Return the address of a running application's UI for people: the cluster's proxy, else the driver's port.

    Args:
        bound: Spark's address with the bound port; None without a UI.
        application: The application's id.
        settings: Spark's settings; YARN sets a proxy there, and so may a standalone master.

    Example:
        >>> ui_address("http://10.0.0.5:4041", "app-1", {})
        'http://10.0.0.5:4041'
        >>> ui_address("http://d:4040", "app-1", {"spark.ui.reverseProxy": "true", "spark.ui.reverseProxyUrl": "https://s"})
        'https://s/proxy/app-1'
    """
    of_yarn = settings.get(_YARN_PROXY, "").split(",")[0]
    if of_yarn:
        return of_yarn
    proxy = settings.get("spark.ui.reverseProxyUrl", "").rstrip("/")
    if proxy and settings.get("spark.ui.reverseProxy") == "true":
        return f"{proxy}/proxy/{application}"
    return bound or ""


def _properties(config: TrainConfig) -> dict[str, str]:
    return {
        **spark_conf(),
        # A page without a login must not be able to end the run.
        **({"spark.ui.enabled": "true", "spark.ui.killEnabled": "false"} if config.spark_ui else {}),
        "spark.app.name": f"deepspark train {config.run_dir.name}",
        # Starts are counted in the task: Spark knows no progress, and would end the job and with it all workers.
        "spark.task.maxFailures": str(_MAX_FAILURES),
        # A process with TensorFlow keeps the devices and threads of the worker before.
        "spark.python.worker.reuse": "false",
        **{f"spark.executorEnv.{name}": "1" for name in ONE_THREAD},
    }


def master_for(master: str, *, n_workers: int) -> str:
    """Return the Spark master to use: a plain local master never starts a task again, and may have too few slots.

    Example:
        >>> master_for("local[*]", n_workers=2), master_for("spark://a:7077", n_workers=2)
        ('local[2, 1000000]', 'spark://a:7077')
    """
    return f"local[{n_workers}, {_MAX_FAILURES}]" if stays_in_process(master) else master


def _worker_task(
    settings: Mapping[str, Any], ended: Accumulator[tuple[dict[str, Any], ...]]
) -> Callable[[int, Iterable[int]], Iterator[dict[str, Any]]]:
    def run(worker: int, _: Iterable[int]) -> Iterator[dict[str, Any]]:
        # Imported in the worker's process: the driver stays without TensorFlow.
        from pyspark import TaskContext

        from deepspark_ops.devices.in_task import TaskGrant
        from deepspark_ops.train.worker.spark_task import run_in_task

        context = TaskContext.get()
        assert context is not None, "runs inside a Spark task"
        gpus = context.resources().get("gpu")
        grant = TaskGrant(tuple(gpus.addresses) if gpus else (), context.cpus())
        outcome = run_in_task(settings, worker, context.attemptNumber(), grant)
        ended.add((outcome,))
        yield outcome

    return run


if __name__ == "__main__":
    sys.exit(stage_main(main))
