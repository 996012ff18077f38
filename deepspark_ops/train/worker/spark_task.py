"""A worker inside a Spark task: which try this is, and what of its failures another try may cure.

Nothing heavy is imported before the tries are counted: a worker that the kernel kills while TensorFlow loads must still
reach the last try, which only says that it is given up.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepspark_ops.devices.in_task import TaskGrant, devices_in_task, show_only
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.errors import ConfigError, WorkerFenced, WorkerReplaced
from deepspark_ops.train.worker.fault_file import last_fault, note_faults
from deepspark_ops.train.worker.outcome import WorkerOutcome

_LOG = logging.getLogger(__name__)


def run_in_task(plain: Mapping[str, Any], worker: int, attempt: int, grant: TaskGrant) -> dict[str, Any]:
    """Run a worker inside a Spark task and return its ``WorkerOutcome`` as plain values.

    What another start may cure is raised, so that Spark starts this task again, and no other. After ``worker_tries``
    starts it is an outcome, since Spark would end the whole job; a task whose earlier starts were all killed returns at
    once.

    Args:
        plain: What ``spark_job`` packed: ``address``, ``work``, ``worker_tries``, ``devices``, ``core_share`` and
            the fields of ``WorkerTask``.
        worker: Its id, the task's partition.
        attempt: Earlier starts of the task.
        grant: What Spark assigned to this one.
    """
    tries = int(plain["worker_tries"])
    work = Path(plain["work"])
    if attempt >= tries:
        killed = (
            f"worker {worker}: its process was killed {tries} times; where memory ran out, lower batch_size or give"
            ' --recompute ("deepspark check SOLVER --memory" says what fits)'
        )
        if fault := last_fault(work, worker):
            killed = f"worker {worker}: its process ended {tries} times, the last one by {fault}"
        return WorkerOutcome(worker, "given_up", killed).to_plain()
    try:
        return _run_unless_fenced(plain, worker, attempt, grant).to_plain()
    except Exception as error:  # the task's outermost loop: Spark shows the traceback of what is raised on
        if attempt + 1 < tries:
            raise
        _LOG.exception("worker %d, start %d of %d", worker, attempt + 1, tries)
        return WorkerOutcome(worker, "given_up", f"worker {worker}: {error}").to_plain()


def _run_unless_fenced(plain: Mapping[str, Any], worker: int, attempt: int, grant: TaskGrant) -> WorkerOutcome:
    """Run a worker that leaves in one line when it is fenced; one that was only given up joins again."""
    while True:
        try:
            return _run(plain, worker, attempt, grant)
        except WorkerReplaced as error:
            _LOG.warning("%s", error)
            return WorkerOutcome(worker, "replaced", str(error))
        except WorkerFenced as error:
            _LOG.warning("%s, and joining again", error)
            attempt += 1


def _run(plain: Mapping[str, Any], worker: int, attempt: int, grant: TaskGrant) -> WorkerOutcome:
    from deepspark_ops.exchange.client import connect

    work = Path(plain["work"])
    before = last_fault(work, worker) if attempt else ""
    note_faults(work, worker)
    try:
        devices = devices_in_task(
            RunDevices.from_plain(plain["devices"]),
            worker,
            grant,
            core_share=int(plain["core_share"]),
            environment=os.environ,
        )
    except ConfigError as error:
        from deepspark_ops.train.worker.ending import to_its_end

        refusal = WorkerOutcome(worker, "refused", str(error))
        return to_its_end(worker, connect(plain["address"]), lambda _: refusal)
    show_only(devices, os.environ, sys.modules)
    # TensorFlow is imported here, and looks for GPUs.
    from deepspark_ops.train.worker.process import run_worker
    from deepspark_ops.train.worker.task import WorkerTask

    start_state = plain["start_state"]
    task = WorkerTask(
        Path(plain["run_dir"]),
        worker,
        attempt,
        Path(start_state) if start_state else None,
        int(plain["origin"]),
        devices,
        before,
    )
    return run_worker(task, connect(plain["address"]))
