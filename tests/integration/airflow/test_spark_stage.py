"""A Spark stage below an Airflow operator: levels and last message reach the task's log, and nothing outlives it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import is_alive, wait_until

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

SUBMIT = """
import os, sys
from deepspark_ops.operators.tasks.spark_stage import StageSubmitHook
from deepspark_ops.processes.job_log import StageFailed
from deepspark_ops.processes.spark_submit import job_variables, spark_conf
variables = job_variables(os.environ)
hook = StageSubmitHook(conf=spark_conf(), name="train", env_vars=variables, application_args=sys.argv[2:])
try:
    hook.submit(sys.argv[1])
except StageFailed as error:
    print(f"FAILED {error.exit_code}: {error}")
"""

# A driver with two Python workers that run for ever; each writes its process id into a folder.
ENDLESS = """
import os, sys, threading, time
from pathlib import Path
from deepspark_ops.processes.stage_process import stage_main

def work(index, rows):
    Path(folder, f"worker{index}").write_text(str(os.getpid()))
    time.sleep(600)
    yield index

def run(path):
    from pyspark import SparkContext
    global folder
    folder = str(path)
    Path(folder, "driver").write_text(str(os.getpid()))
    Path(folder, "jvm").write_text(str(os.getppid()))
    job = SparkContext.getOrCreate().parallelize(range(2), 2).mapPartitionsWithIndex(work)
    threading.Thread(target=job.collect, daemon=True).start()
    time.sleep(600)  # a driver that does not talk to the JVM would not see its end

if __name__ == "__main__":
    sys.exit(stage_main(run))
"""

MISTAKEN = """
import logging, sys
from deepspark_ops.errors import ConfigError
from deepspark_ops.processes.stage_process import stage_main

def run(path):
    logging.getLogger("x").warning("rate_scale is capped")
    raise ConfigError("n_workers=0: at least 1\\nallowed: more")

if __name__ == "__main__":
    sys.exit(stage_main(run))
"""


def start_stage(tmp_path: Path, application: str, argument: Path) -> subprocess.Popen[str]:
    (tmp_path / "submit.py").write_text(SUBMIT)
    (tmp_path / "application.py").write_text(application)
    connection = json.dumps({"conn_type": "spark", "host": "local[2]"})
    return subprocess.Popen(
        [sys.executable, str(tmp_path / "submit.py"), str(tmp_path / "application.py"), str(argument)],
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path / "airflow"), "AIRFLOW_CONN_SPARK_DEFAULT": connection},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_killed_task_process(tmp_path: Path, number: signal.Signals) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    process = start_stage(tmp_path, ENDLESS, pids)
    names = {"driver", "jvm", "worker0", "worker1"}
    try:
        wait_until(lambda: {p.name for p in pids.iterdir() if p.read_text()} == names, "workers", 120)
        started = {path.name: int(path.read_text()) for path in pids.iterdir()}
        assert all(is_alive(pid) for pid in started.values())
        process.send_signal(number)
        process.wait()
        wait_until(lambda: not any(is_alive(pid) for pid in started.values()), f"end of {started}", 30)
    finally:
        process.kill()
        process.communicate()
        for path in pids.iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)


def test_levels_and_the_stages_own_message_reach_the_task(tmp_path: Path) -> None:
    output, _ = start_stage(tmp_path, MISTAKEN, tmp_path / "config.json").communicate(timeout=120)
    log_lines = [(match[1], match[2]) for match in re.finditer(r"\[(\w+) *\] (.*?) +\[airflow\.task\.hooks", output)]
    assert log_lines[1:] == [
        ("warning", "rate_scale is capped"),
        ("error", "n_workers=0: at least 1"),
        ("error", "allowed: more"),
    ], output
    assert output.endswith("FAILED 2: n_workers=0: at least 1\nallowed: more\n")
