"""Stages as Spark applications: the provider's SparkSubmitOperator over a config, with a sure end.

The provider's hook lets spark-submit outlive a killed task process: the child keeps the task's stdin, the socket to the
supervisor, and gets no signal. In local and client mode our child gets a signal from the kernel. Cluster modes keep the
provider's way, with the re-attachment after a retry.
"""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Connection

from deepspark_ops.api.stages import Runner
from deepspark_ops.config.base import StageConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.provider.airflow_names import AirflowException, AirflowNotFoundException
from deepspark_ops.operators.tasks.stage_arguments import StageArguments
from deepspark_ops.operators.tasks.stage_run import (
    StageRun,
    ends_plainly,
    line_logger,
    noted_stage,
    require_training,
)
from deepspark_ops.operators.tasks.task_lines import Group
from deepspark_ops.processes.handed_signals import stop_driver
from deepspark_ops.processes.job_log import JobLog, LineHandler, stage_ended
from deepspark_ops.processes.spark_submit import (
    DRIVERS_PYTHON,
    job_variables,
    jvm_of_python_tasks,
    named_data,
    popen_arguments,
    require_java,
    spark_conf,
    stage_of,
)
from deepspark_ops.run_paths import RunPaths, write_text_whole

_STOP_S = 4.0
"""Airflow kills a task 5 s after it has asked for its end."""
DEFAULT_MASTER = "local[*]"
"""Where the connection does not exist: this machine, so that a fresh installation works."""
_PACKAGE = Path(__file__).resolve().parents[2]


REFUSED: Final = {
    "application": "the stage's own application runs",
    "application_args": "the stage's own arguments are its config",
    "java_class": "the stage is a Python application",
}
"""Arguments of the provider's operator that the stage sets."""
TEMPLATED: Final = ("conn_id", "driver_memory", "executor_memory", "num_executors", "executor_cores", "yarn_queue")
"""Arguments of the provider's operator that are templates here, beside those that are templates there."""


class StageSubmitHook(SparkSubmitHook):
    """Submits a stage; the stage's lines reach the task log with their levels, and the stage ends with the task."""

    cwd: Path | None = None
    """Folder that relative paths inside Caffe's files are relative to."""
    on_line: LineHandler | None = None
    """Takes the driver's lines, the task log if it is None."""
    reads = ""
    """The data that the stage's config names, for the message of a read that kills the driver."""
    _driver_file = ""
    """The application, once it is submitted."""
    _is_ended = False
    """Whether the task's process received SIGTERM. Airflow sends it, and so may anybody else."""

    @classmethod
    def get_connection(cls, conn_id: str) -> Connection:
        """Return the Spark connection; without the connection this machine."""
        try:
            return super().get_connection(conn_id)
        except AirflowNotFoundException:
            return Connection(conn_id=conn_id, conn_type="spark", host=DEFAULT_MASTER)

    @property
    def master(self) -> str:
        """The connection's Spark master."""
        return str(self._connection["master"])

    @property
    def is_local(self) -> bool:
        """Whether the whole application lives on this machine, below this process."""
        return self.master.startswith("local")

    @property
    def runs_driver_here(self) -> bool:
        """Whether the driver is a child of this process (client mode), with the stage's output."""
        return str(self._connection["deploy_mode"]) != "cluster"

    def _get_spark_binary_path(self) -> list[str]:
        """Prefer this interpreter's spark-submit: a task's PATH may lack the environment."""
        name = str(self._connection["spark_binary"])
        binary = Path(sys.executable).with_name(name)
        return [str(binary) if binary.exists() else shutil.which(name) or name]

    def submit(self, application: str = "", **popen: Any) -> str | None:
        """Run spark-submit and wait for the end.

        Raises:
            StageFailed: The driver ran here and failed; the message is the stage's own.
        """
        if not self.runs_driver_here:
            driver: str | None = super().submit(application, **popen)
            return driver
        self._driver_file = application
        self._job_log = JobLog(self.on_line or line_logger(self.log))
        try:
            super().submit(application, cwd=self.cwd, **popen_arguments(), **popen)
        except AirflowException as error:
            process: subprocess.Popen[str] | None = self._submit_sp
            if process is None or not process.returncode:
                raise
            if self._is_ended:
                raise stage_ended(self._name, process.returncode) from error
            raise self._job_log.failure(self._name, process.returncode, reads=self.reads) from error
        return None

    def on_kill(self) -> None:
        """End spark-submit after a SIGTERM; a training takes a snapshot if the snapshot is quick."""
        self._is_ended = True
        if self.runs_driver_here and self._submit_sp is not None and self._driver_file:
            self._job_log.is_ending = True
            stop_driver(self._submit_sp, self._driver_file, patience_s=_STOP_S)
        super().on_kill()

    def _process_spark_submit_log(self, itr: Iterator[str]) -> None:
        if not self.runs_driver_here:
            super()._process_spark_submit_log(itr)
            return
        for line in itr:
            self._job_log.feed(line)


class JobArguments(StageArguments):
    """Part of an operator whose stage is a job.

    Attributes:
        module: The stage's entry module.
        in_python: Function of ``api/stages.py`` that runs the stage, in place of ``module`` alone.
    """

    module: str
    in_python: ClassVar[Callable[..., Any] | None] = None

    def run_stage(self, config: Any, runner: Runner) -> None:
        """Run the stage and wait for the end.

        Raises:
            AirflowFailException: The stage needs a training, and the run has none.
        """
        if self.needs_training:
            require_training(config.run_dir)
        if self.in_python is None:
            runner(self.module, config)
        else:
            self.in_python(config, run=runner)

    def result(self, run: StageRun, config: Any) -> dict[str, str]:
        """Return the task's output beside the run's paths: paths and digests of the finished stage."""
        raise NotImplementedError


class SparkStageOperator(JobArguments, SparkSubmitOperator):
    """A stage as a Spark application. Subclasses have the module, the config and the results.

    Arguments of the provider's SparkSubmitOperator keep the provider's meaning, except the arguments of ``REFUSED``.

    Attributes:
        first_group: Its lines are folded in the log, into this group first; None folds nothing.
    """

    more_templates: ClassVar[tuple[str, ...]] = TEMPLATED
    refused: ClassVar[Mapping[str, str]] = REFUSED
    first_group: Group | None = None
    conf: dict[str, Any] | None
    env_vars: dict[str, Any] | None
    name: str | None

    def __init__(self, *, conn_id: str = "spark_default", **kwargs: Any) -> None:
        """Keep the arguments; everything else is decided when the task runs.

        Args:
            conn_id: Spark connection; its master runs the stage.
            kwargs: Fields of the config models, the provider's arguments, Airflow's.

        Raises:
            ConfigError: An argument is unknown, or the stage sets it.
        """
        super().__init__(conn_id=conn_id, **{"name": None, **kwargs})
        self.application = str(_PACKAGE.joinpath(*self.module.split(".")[1:]).with_suffix(".py"))
        for name in TEMPLATED:
            setattr(self, name, getattr(self, f"_{name}"))

    def stage_config(self, context: Any, run: StageRun, master: str) -> StageConfig:
        """Return the config of this stage for a run."""
        raise NotImplementedError

    def has_python_tasks(self, config: Any) -> bool:
        """Return whether Python alone computes in this stage, and the JVM only starts tasks."""
        return False

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Write the stage's config into the run's folder, submit the job, and return paths and digests."""
        run = self.stage_run(context)
        with noted_stage(run.run_dir, self.stage, self.log, first_group=self.first_group) as self._on_line:
            self.refuse_unknown_conf(context)
            return {**run.to_xcom(), **self.result(run, self._submit(context, run))}

    def _submit(self, context: Any, run: StageRun) -> StageConfig:
        _refuse_set_properties(self.conf or {})
        for name in TEMPLATED:
            setattr(self, f"_{name}", getattr(self, name) or None)
        self.name = self.name or stage_of(self.module)  # the provider's own default is the same for all jobs
        hook = StageSubmitHook(conn_id=self._conn_id, deploy_mode=self._deploy_mode)
        self._look_at_stores(hook)
        config = self.stage_config(context, run, hook.master)
        config_path = run.config_path(stage_of(self.module))
        write_text_whole(config_path, config.model_dump_json(indent=2))
        self.application_args = [str(config_path)]
        self._reads = named_data(config)
        self.env_vars = _variables(self.env_vars or {}, hook.master)
        if hook.runs_driver_here and self.has_python_tasks(config):
            self.env_vars |= jvm_of_python_tasks({**os.environ, **self.env_vars})
        scratch = RunPaths(run.run_dir).work / "spark"
        if hook.is_local:
            require_java()
            scratch.mkdir(parents=True, exist_ok=True)
        self.conf = {**spark_conf(scratch if hook.is_local else None), **_own_python(hook), **(self.conf or {})}
        submit = super().execute
        try:
            self.run_stage(config, lambda *_: submit(context))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return config

    def _look_at_stores(self, hook: StageSubmitHook) -> None:
        """Report the hosts without this process's credentials of Airflow's connections.

        Raises:
            ConfigError: The driver starts on another host.
        """
        with self.store_access() as access:
            names = ", ".join(access.connections)
        if not names:
            return
        if hook.runs_driver_here:
            if not hook.is_local:
                self.log.info("stores: the driver has the credentials of %s; %s", names, _OTHER_HOSTS)
        elif self.store_conn_id:
            msg = (
                f"store_conn_id={names}: connection {self._conn_id} has deploy mode cluster, and the driver's host"
                " would get credentials by the arguments of spark-submit; use deploy mode client, or leave out"
                " store_conn_id and give the cluster's hosts credentials of their own"
            )
            raise ConfigError(msg)
        else:
            self.log.warning("stores: the driver starts in the cluster without the credentials of %s", names)

    def _get_hook(self) -> StageSubmitHook:
        # The provider's operator keeps each argument of its hook under its name, or with an underscore before it.
        attributes, names = vars(self), inspect.signature(SparkSubmitHook.__init__).parameters
        hook = StageSubmitHook(
            **{name: attributes[key] for name in names for key in (name, f"_{name}") if key in attributes}
        )
        hook.cwd = self.places.root
        hook.on_line = self._on_line
        hook.reads = self._reads
        return hook


_OTHER_HOSTS: Final = "executors on other hosts need credentials of their own"
_SET: Final = {
    "spark.speculation": "two copies of one worker would take each other's grants",
    "spark.local.dir": "the run's folder holds scratch files of a local master",
    "spark.submit.deployMode": "use deploy_mode=",
    "spark.master": "the Spark connection of conn_id says it",
}
"""Spark properties that the stage sets."""


def _variables(named: Mapping[str, Any], master: str) -> dict[str, str]:
    """Return the environment of a job: the needed variables, with the argument ``env_vars`` above."""
    texts = {name: str(value) for name, value in named.items()}
    needed = job_variables({**os.environ, **texts}, master=master)
    return {**needed, **texts, "PYTHONPATH": needed["PYTHONPATH"]}  # which has that of env_vars in it


def _own_python(hook: StageSubmitHook) -> dict[str, str]:
    """Return the property of a driver in this environment; spark-submit starts the driver by the workers' else."""
    return {DRIVERS_PYTHON: sys.executable} if hook.runs_driver_here else {}


def _refuse_set_properties(conf: Mapping[str, Any]) -> None:
    lines = [f"conf: {name}={conf[name]} is not taken: {_SET[name]}" for name in sorted(set(conf) & set(_SET))]
    if lines:
        raise ConfigError("\n".join(lines))
