"""Start of a stage's Spark context, bound and encrypted according to ``cluster_network``.

No other file outside ``spark_job.py`` imports pyspark, so the conversion of Spark's types to Arrow's is here, too.
"""

from __future__ import annotations

import inspect
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from deepspark_ops.errors import ConfigError, DeepSparkError
from deepspark_ops.processes.cluster_network import choose_listen_address, cluster_network
from deepspark_ops.processes.spark_failure import job_error, refused_setting, spark_failure
from deepspark_ops.processes.spark_submit import (
    WORKERS_PYTHON,
    job_variables,
    jvm_of_python_tasks,
    require_java,
    require_one_pyspark,
    spark_conf,
)

_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Environment: spark-submit started this driver, and with it the JVM."""

_ANY_ZONE: Final = "UTC"
"""Arrow's type of a timestamp names a time zone; the values do not depend on it."""
_POLL_S: Final = 0.2
_log = logging.getLogger(__name__)
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class SparkOnDemand:
    """Spark, started at the first use."""

    def __init__(self, start: Callable[[], SparkContext], *, is_allowed: bool = True) -> None:
        """Take the start function, and whether a start is allowed."""
        self._start = start
        self.is_allowed = is_allowed
        self._context: SparkContext | None = None

    @classmethod
    def running(cls, context: SparkContext) -> SparkOnDemand:
        """Return an object for a running context."""
        spark = cls(lambda: context)
        spark.context()
        return spark

    @property
    def is_started(self) -> bool:
        """Whether the context was started."""
        return self._context is not None

    def context(self) -> SparkContext:
        """Return the context.

        Raises:
            ConfigError: As ``start_context``, at the first call.
            DeepSparkError: Likewise.
        """
        if self._context is None:
            if not self.is_allowed:
                msg = (
                    "engine=process: Spark is needed for this source (docs/guides/data.md);"
                    " give engine=auto or engine=spark"
                )
                raise ConfigError(msg)
            self._context = self._start()
        return self._context

    def map(
        self,
        work: Callable[[Item], Answer],
        items: Sequence[Item],
        *,
        failed: str,
        on_wait: Callable[[], None] = lambda: None,
    ) -> list[Answer]:
        """Return the answers for items, in their order: here if Spark does not run, else by a task for each item.

        Args:
            work: Gives the answer for an item.
            items: Travel to the tasks.
            failed: Begins the error, for example ``the shards were not written``.
            on_wait: Called several times a second while tasks run.

        Raises:
            DeepSparkError: As a task raised the error, or a task died in a way that another try may cure.
        """
        if self._context is None:
            return [work(item) for item in items]
        job = self._context.parallelize(items, max(1, len(items))).map(work)
        with ThreadPoolExecutor(max_workers=1) as pool:
            future = pool.submit(job.collect)
            try:
                while not future.done():
                    on_wait()
                    wait([future], _POLL_S)
                answers: list[Answer] = future.result()
            except (PySparkException, Py4JError) as error:
                raise job_error(error, master=self._context.master, failed=failed) from error
            finally:
                if not future.done():
                    self._context.cancelAllJobs()
        return answers

    def stop(self) -> None:
        """Stop the context after a start."""
        if self._context is not None:
            self._context.stop()


def start_context(
    master: str,
    properties: Mapping[str, str],
    *,
    listen_address: str,
    insecure_network: bool,
    further: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _: {},
    has_python_tasks: bool = False,
) -> SparkContext:
    """Start Spark's driver in this process.

    The JVM starts first, with properties that anyone may read in its argument list. The JVM reads spark-defaults.conf
    with a cluster's secret; settings that depend on the secret are made inside the JVM, before the context starts.

    Args:
        master: Spark master.
        properties: Spark properties without secrets; ``spark.app.name`` is required.
        listen_address: Address of this host that the driver binds to, unless the master is local.
        insecure_network: The user accepts traffic without encryption between driver and executors.
        further: Returns additional properties for Spark's present settings, with spark-defaults.conf.
        has_python_tasks: Whether Python alone computes, in the workers; see ``jvm_of_python_tasks``.

    Raises:
        ConfigError: pyspark and pyspark-client differ, Java is missing, the cluster's settings prevent encryption, or
            ``further`` refuses the settings.
        DeepSparkError: Spark does not start.
    """
    require_one_pyspark()
    if _GATEWAY not in os.environ:
        require_java()
    for name, value in job_variables(os.environ, master=master).items():
        os.environ.setdefault(name, value)
    if has_python_tasks:
        os.environ.update(jvm_of_python_tasks(os.environ))
    start_properties = {**properties, "spark.master": master}
    gateway = _launch(start_properties)
    settings: dict[str, str] = {}
    try:
        conf = SparkConf(_jvm=gateway.jvm)
        settings = dict(conf.getAll())
        network = cluster_network(master, settings, listen_address=listen_address, insecure_network=insecure_network)
        if network.warning is not None:
            _log.warning("%s", network.warning)
        use_workers_python(settings, master)
        added = {**start_properties, **network.properties, **further(settings)}
        settings |= added
        return SparkContext(conf=conf.setAll(list(added.items())), gateway=gateway)
    except (Py4JError, PySparkException) as error:
        start_error = _not_started(error, master, settings)  # first: the text of a Java error is read from the JVM
        gateway.shutdown()
        raise start_error from error
    except BaseException:
        gateway.shutdown()
        raise


@contextmanager
def open_context(
    master: str | None, app_name: str, *, listen_address: str, insecure_network: bool
) -> Iterator[SparkContext]:
    """Start Spark's driver in this process until the block ends; its scratch files are in a temporary folder.

    Args:
        master: Spark master; None: this host.
        app_name: Name of the application.
        listen_address: The option of this name.
        insecure_network: See ``start_context``, also for errors.
    """
    master = master or "local[*]"
    with tempfile.TemporaryDirectory(prefix="deepspark-") as scratch:
        # The variable and not spark.local.dir, which Spark answers with a warning in every log.
        os.environ.setdefault("SPARK_LOCAL_DIRS", scratch)
        context = start_context(
            master,
            {**spark_conf(), "spark.app.name": app_name},
            listen_address=choose_listen_address(listen_address, master),
            insecure_network=insecure_network,
        )
        try:
            yield context
        finally:
            context.stop()


def use_workers_python(settings: Mapping[str, str], master: str) -> None:
    """Start workers by the interpreter that Spark's settings name, for example by the interpreter of an archive.

    Spark itself hands the name from spark-submit to a driver, and not to a driver that starts without spark-submit.
    """
    if not master.startswith("local[") and master != "local" and (python := settings.get(WORKERS_PYTHON)):
        os.environ["PYSPARK_PYTHON"] = python


def _launch(start_properties: Mapping[str, str]) -> JavaGateway:
    try:
        return launch_gateway(SparkConf(loadDefaults=False).setAll(list(start_properties.items())))
    except PySparkException as error:
        msg = (
            "Spark's JVM ended before it was ready; its own lines are above. Often what only the start of Java"
            " reads is wrong: spark.driver.memory, spark.driver.extraJavaOptions, JAVA_TOOL_OPTIONS,"
            " PYSPARK_SUBMIT_ARGS"
        )
        raise DeepSparkError(msg) from error


def _not_started(error: Exception, master: str, settings: Mapping[str, str]) -> DeepSparkError:
    try:
        refused = refused_setting(error, settings)
    except Py4JError:
        refused = None  # the JVM has ended
    if refused is not None:
        return ConfigError(
            f"{refused}; put it right in conf/spark-defaults.conf (SPARK_CONF_DIR names the folder) or where the job"
            " is given it"
        )
    return DeepSparkError(
        f"Spark did not start with master={master}: {spark_failure(error, master=master, task='task')}"
    )


def arrow_schema(schema: Any) -> Any:
    """Return the columns of a Spark frame, a ``StructType``, as a ``pyarrow.Schema``.

    A type without an Arrow type becomes an empty struct.
    """
    # Most stages do not need pyarrow and Spark's SQL.
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    # Spark 4.2 asserts that there is a time zone; 4.0 and 4.1 have no such argument and take UTC.
    zone = {"timezone": _ANY_ZONE} if "timezone" in inspect.signature(to_arrow_type).parameters else {}
    fields = []
    for field in schema.fields:
        try:
            fields.append((field.name, to_arrow_type(field.dataType, **zone)))
        except PySparkException:
            fields.append((field.name, pa.struct([])))
    return pa.schema(fields)
