"""A small Spark job, started as training starts jobs: facts of its executors and of their connection to the driver.

Started as ``python -m deepspark_ops.doctor.spark_job CONFIG.json``; the facts go to ``facts.json`` beside the config.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.doctor import DoctorConfig
from deepspark_ops.doctor.meeting import Meeting, listen_ports
from deepspark_ops.processes.cluster_network import AUTHENTICATED_CIPHER, ENCRYPTION, choose_listen_address
from deepspark_ops.processes.spark_context import start_context
from deepspark_ops.processes.spark_failure import spark_failure
from deepspark_ops.processes.spark_submit import spark_conf
from deepspark_ops.processes.stage_process import read_config_file, stage_main
from deepspark_ops.run_paths import write_text_whole

FACTS = "facts.json"
_SETTLE_S = 2.0
_HOLD_S = 1.0
"""A task waits this long, so that the other tasks get the other slots."""
_JVM = (
    "java_method('java.lang.System', 'getProperty', 'java.version') AS java",
    "java_method('org.apache.spark.package', 'SPARK_VERSION') AS spark",
)


def main(config_path: Path) -> None:
    """Run the job and write its facts.

    Raises:
        ConfigError: The cluster's configuration does not allow a run.
        DeepSparkError: Spark does not start.
    """
    config = parse_config(DoctorConfig, read_config_file(config_path))
    assert config.master is not None, "the parent has chosen one"
    address = choose_listen_address(config.listen_address, config.master)
    conf = {**spark_conf(), "spark.app.name": "deepspark doctor", "spark.task.maxFailures": "1"}
    context = start_context(config.master, conf, listen_address=address, insecure_network=config.insecure_network)
    try:
        facts = _facts(context, config, address)
        write_text_whole(config_path.with_name(FACTS), json.dumps(facts))
    finally:
        context.stop()


def _facts(context: SparkContext, config: DoctorConfig, address: str) -> dict[str, Any]:
    settings = dict(context.getConf().getAll())
    facts: dict[str, Any] = {
        "spark": context.version,
        "encryption": {name: settings.get(name, "") for name in (*ENCRYPTION, *AUTHENTICATED_CIPHER)},
        "executors": [],
        "jvms": [],
        "error": "",
    }
    facts["n_executors"] = 0 if _is_in_process(context) else _await_executors(context, config.timeout_s / 2)
    facts["slots"] = _slots(context) if facts["n_executors"] else int(context.defaultParallelism)
    if not facts["n_executors"] and not _is_in_process(context):
        return facts
    n_tasks = max(1, min(int(facts["slots"]), 64))
    try:
        with tempfile.NamedTemporaryFile(dir=config.home, prefix=".deepspark-doctor-") as marker:
            with Meeting(address, *listen_ports(config.listen_port, config.n_servers)) as meeting:
                task = _task(meeting.addresses, meeting.token, str(config.home), Path(marker.name).name)
                facts["executors"] = context.parallelize(range(n_tasks), n_tasks).mapPartitions(task).collect()
        session = SparkSession(context)
        rows = session.range(0, n_tasks, 1, n_tasks).selectExpr(*_JVM).distinct().collect()
        facts["jvms"] = [{"java": row["java"], "spark": row["spark"]} for row in rows]
    except (Py4JError, PySparkException) as error:
        facts["error"] = spark_failure(error, master=str(config.master), task="task")
    return facts


def _is_in_process(context: SparkContext) -> bool:
    return bool(context._jsc.sc().isLocal())


def _await_executors(context: SparkContext, timeout_s: float) -> int:
    """Return the number of executors once no more executors join; 0 without executors within the time limit."""
    deadline = time.monotonic() + timeout_s
    registered: Callable[[], int] = lambda: int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # noqa: E731
    pause, count = threading.Event(), 0
    while time.monotonic() < deadline:
        n_executors = registered()
        if n_executors and n_executors == count:
            return n_executors
        count = n_executors
        pause.wait(_SETTLE_S if n_executors else 0.2)
    return count


def _slots(context: SparkContext) -> int:
    spark = context._jsc.sc()
    try:
        return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))
    except Py4JError:
        return int(context.defaultParallelism)


def _task(
    addresses: Sequence[tuple[str, int]], token: bytes, home: str, marker: str
) -> Callable[[Iterable[int]], Iterator[dict[str, Any]]]:
    hold_s = _HOLD_S

    def run(_: Iterable[int]) -> Iterator[dict[str, Any]]:
        import platform
        import socket
        import time

        try:
            from deepspark_ops.doctor.executor_look import look
        except ImportError as error:
            yield {"host": socket.gethostname(), "python": platform.python_version(), "missing": str(error)}
            return
        yield look(addresses, token, home, marker)
        time.sleep(hold_s)

    return run


if __name__ == "__main__":
    sys.exit(stage_main(main))
