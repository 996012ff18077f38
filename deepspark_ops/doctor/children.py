"""Looking from processes of their own, with a limit in time: what hangs or dies there is a finding here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caffe_import.files.regular_file import regular_text
from deepspark_ops.config.commands.doctor import DoctorConfig
from deepspark_ops.processes.job_log import JobLog
from deepspark_ops.processes.spark_submit import job_variables, popen_arguments

_FACTS = "facts.json"


@dataclass(frozen=True)
class Answer:
    """What a process said.

    Attributes:
        facts: Empty if it failed.
        problem: Why it failed, one message; empty if it did not.
        lines: What it wrote, for whoever wants to know more.
    """

    facts: Mapping[str, Any]
    problem: str = ""
    lines: tuple[str, ...] = field(default=(), repr=False)


def ask_module(module: str, *arguments: str, timeout_s: float, environment: Mapping[str, str]) -> Answer:
    """Return the JSON that ``python -m MODULE`` prints in its last line.

    Args:
        module: Prints facts.
        arguments: Its arguments.
        timeout_s: Seconds that it may take.
        environment: Of the process, beside what every stage gets.
    """
    done = _run([module, *arguments], timeout_s=timeout_s, environment=environment)
    if isinstance(done, Answer):
        return done
    lines = (*done.stderr.splitlines(), *done.stdout.splitlines())
    if done.returncode == 0 and done.stdout.strip():
        try:
            return Answer(json.loads(done.stdout.strip().splitlines()[-1]), lines=lines)
        except json.JSONDecodeError:
            pass
    return Answer({}, _how_it_ended(done.returncode, lines), lines)


def ask_spark(config: DoctorConfig, master: str, *, environment: Mapping[str, str]) -> Answer:
    """Return what the Spark job finds.

    Args:
        config: What the user asked for.
        master: Spark master.
        environment: Of the process, beside what every stage gets.
    """
    with tempfile.TemporaryDirectory(prefix="deepspark-doctor-") as folder:
        path = Path(folder, "config.json")
        path.write_text(config.model_copy(update={"master": master}).model_dump_json(), encoding="utf-8")
        job = ["deepspark_ops.doctor.spark_job", str(path)]
        done = _run(job, timeout_s=config.timeout_s, environment=environment, master=master)
        if isinstance(done, Answer):
            return done
        lines = tuple(done.stderr.splitlines())
        facts = path.with_name(_FACTS)
        if done.returncode == 0 and facts.is_file():
            return Answer(json.loads(regular_text(facts)), lines=lines)
        log = JobLog(lambda level, text: None)
        for line in lines:
            log.feed(line)
        return Answer({}, str(log.failure("doctor", done.returncode)), lines)


def _run(
    arguments: Sequence[str], *, timeout_s: float, environment: Mapping[str, str], master: str = "local[*]"
) -> subprocess.CompletedProcess[str] | Answer:
    try:
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [sys.executable, "-m", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_s,
            env={**environment, **job_variables(environment, master=master)},
            **popen_arguments(),
        )
    except subprocess.TimeoutExpired as error:
        said = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr or ""
        return Answer({}, f"no answer within {timeout_s:g} s", tuple(said.splitlines()))


def _how_it_ended(code: int, lines: Sequence[str]) -> str:
    how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"{how}: {lines[-1].strip()}" if lines else how


def own_environment() -> dict[str, str]:
    """Return this process' environment without the JVM that a Spark driver may have started for it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY_")}
