"""Checks in separate processes with a time limit: a hang or a crash becomes a finding."""

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

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.config.commands.doctor import DoctorConfig
from deepspark_ops.processes.job_log import JobLog
from deepspark_ops.processes.spark_submit import job_variables, popen_arguments

_FACTS = "facts.json"


@dataclass(frozen=True)
class Answer:
    """Result of a process.

    Attributes:
        facts: The facts; empty if the process failed.
        problem: Reason of the failure, one message; empty on success.
        lines: Lines of the output, for details.
    """

    facts: Mapping[str, Any]
    problem: str = ""
    lines: tuple[str, ...] = field(default=(), repr=False)


def ask_module(module: str, *arguments: str, timeout_s: float, environment: Mapping[str, str]) -> Answer:
    """Return the JSON in the last output line of ``python -m MODULE``.

    Args:
        module: Module that prints facts.
        arguments: Arguments of the module.
        timeout_s: Time limit in seconds.
        environment: Environment of the process, besides the variables of every stage.
    """
    completed = _run([module, *arguments], timeout_s=timeout_s, environment=environment)
    if isinstance(completed, Answer):
        return completed
    lines = (*completed.stderr.splitlines(), *completed.stdout.splitlines())
    if completed.returncode == 0 and completed.stdout.strip():
        try:
            return Answer(json.loads(completed.stdout.strip().splitlines()[-1]), lines=lines)
        except json.JSONDecodeError:
            pass
    return Answer({}, _how_it_ended(completed.returncode, lines), lines)


def ask_spark(config: DoctorConfig, master: str, *, environment: Mapping[str, str]) -> Answer:
    """Return the facts of the Spark job.

    Args:
        config: Options of the user.
        master: Spark master.
        environment: Environment of the process, besides the variables of every stage.
    """
    with tempfile.TemporaryDirectory(prefix="deepspark-doctor-") as folder:
        path = Path(folder, "config.json")
        path.write_text(config.model_copy(update={"master": master}).model_dump_json(), encoding="utf-8")
        job = ["deepspark_ops.doctor.spark_job", str(path)]
        completed = _run(job, timeout_s=config.timeout_s, environment=environment, master=master)
        if isinstance(completed, Answer):
            return completed
        lines = tuple(completed.stderr.splitlines())
        facts = path.with_name(_FACTS)
        if completed.returncode == 0 and facts.is_file():
            return Answer(json.loads(regular_text(facts)), lines=lines)
        log = JobLog(lambda level, text: None)
        for line in lines:
            log.feed(line)
        return Answer({}, str(log.failure("doctor", completed.returncode)), lines)


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
        error_output = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr or ""
        return Answer({}, f"no answer within {timeout_s:g} s", tuple(error_output.splitlines()))


def _how_it_ended(code: int, lines: Sequence[str]) -> str:
    how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"{how}: {lines[-1].strip()}" if lines else how


def own_environment() -> dict[str, str]:
    """Return this process' environment, without the JVM that a Spark driver may have started for it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY_")}
