"""Parallel runs, a process each: every core has a run, and a failing run ends no other run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from caffe_import.file_access.regular_file import LIST_BYTES, regular_text
from deepspark_ops.config.commands.simulate import VirtualRunConfig
from deepspark_ops.processes.job_log import JobLog, StageFailed
from deepspark_ops.processes.spark_submit import job_variables, popen_arguments
from deepspark_ops.run_paths import write_text_whole

MODULE = "deepspark_ops.simulation"
_LOOK_S = 0.1
_END_S = 10.0
"""Longest wait for the end of a terminated process."""


@dataclass
class _Running:
    config: VirtualRunConfig
    process: subprocess.Popen[bytes]
    log: Path


def run_all(configs: Sequence[VirtualRunConfig], n_processes: int, on_end: Callable[[VirtualRunConfig], None]) -> None:
    """Make every run; call this from the main thread: the processes end with the main thread.

    Args:
        configs: The runs, the longest first, if that is known.
        n_processes: How many at a time.
        on_end: Called after each run whose result is there.

    Raises:
        StageFailed: A run has failed; the message is its own last one. The others are ended; results stay.
    """
    waiting, running = list(configs), list[_Running]()
    try:
        while waiting or running:
            while waiting and len(running) < n_processes:
                running.append(_started(waiting.pop(0)))
            for run in [run for run in running if run.process.poll() is not None]:
                running.remove(run)
                _check_end(run)
                on_end(run.config)
            time.sleep(_LOOK_S)
    finally:
        _end(running)


def _started(config: VirtualRunConfig) -> _Running:
    written, log = config.result.with_suffix(".config"), config.result.with_suffix(".log")
    write_text_whole(written, config.model_dump_json(indent=1))
    command = [sys.executable, "-m", MODULE, str(written)]
    with log.open("wb") as lines:
        process = subprocess.Popen(  # type: ignore[call-overload] # the arguments are those of every stage's process
            command,
            stdout=lines,
            stderr=subprocess.STDOUT,
            env={**os.environ, **job_variables(os.environ)},
            **popen_arguments(),
        )
    return _Running(config, process, log)


def _check_end(run: _Running) -> None:
    """Remove the scratch files beside a finished run's result; the log of a failed run stays."""
    run.config.result.with_suffix(".config").unlink(missing_ok=True)
    code = run.process.returncode
    if code == 0 and run.config.result.is_file():
        run.log.unlink(missing_ok=True)
        return
    log = JobLog(lambda _level, _text: None)
    for line in regular_text(run.log, errors="replace", max_bytes=LIST_BYTES).splitlines():
        log.feed(line)
    failed = log.failure("simulate", code)
    msg = f"strategy {run.config.strategy}, {run.config.n_workers} workers (log: {run.log}): {failed}"
    raise StageFailed(msg, code)


def _end(running: Sequence[_Running]) -> None:
    for run in running:
        run.process.terminate()
    for run in running:
        try:
            run.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            run.process.kill()
            run.process.wait()
        run.config.result.with_suffix(".config").unlink(missing_ok=True)
