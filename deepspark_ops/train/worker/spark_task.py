"""A worker inside a Spark task: the count of tries, and the failures that another try may cure.

The count comes before heavy imports: a worker killed by the kernel while TensorFlow loads must still reach the last
try, which only reports that the worker is given up.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepspark_ops.devices.executor_share import executor_share
from deepspark_ops.devices.in_task import TaskGrant, devices_in_task, show_only
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.errors import ConfigError, WorkerFenced, WorkerReplaced
from deepspark_ops.train.worker.driver_versions import version_note
from deepspark_ops.train.worker.fault_file import last_fault, note_faults, note_files
from deepspark_ops.train.worker.outcome import WorkerOutcome
from deepspark_ops.train.worker.run_copy import HIDDEN_RUN, with_folder_on_host
from deepspark_ops.train.worker.starts import has_ended, note_start, starts_since_progress

_LOG = logging.getLogger(__name__)


def run_in_task(plain: Mapping[str, Any], worker: int, attempt: int, grant: TaskGrant) -> dict[str, Any]:
    """Run a worker inside a Spark task and return its ``WorkerOutcome`` as plain values.

    An error that another start may cure is raised, so that Spark starts only this task again. After ``worker_tries``
    starts without progress the error is an outcome, since Spark would start the task for ever. A task whose earlier
    starts were all killed returns at once.

    Args:
        plain: The values from the driver: ``address``, ``work``, ``n_workers``, ``worker_tries``, ``devices``,
            ``versions`` and the fields of ``WorkerTask``; for other hosts also ``files`` and ``mark``, see
            ``run_copy``, and ``file_server``, see ``driver_files.on_host``.
        worker: The worker's id, the task's partition.
        attempt: Earlier starts of the task, including starts ended by an executor's end or preemption.
        grant: Spark's grant for this task.
    """
    plain = with_folder_on_host(plain, Path.cwd())
    tries = int(plain["worker_tries"])
    work = Path(plain["work"])
    if has_ended(work):  # a slot came too late
        return WorkerOutcome(worker, "finished", "").to_plain()
    if note_start(work, worker, attempt) > tries:
        often = f"{tries} times without an exchange in between"
        killed = (
            f"worker {worker}: its process was killed {often}; where memory ran out, lower batch_size or give"
            ' --recompute ("deepspark check SOLVER --memory" says what fits)'
        )
        if fault := last_fault(work, worker):
            killed = f"worker {worker}: its process ended {often}, the last one by {fault}"
        return WorkerOutcome(worker, "given_up", killed).to_plain()
    try:
        return _run_unless_fenced(plain, worker, attempt, grant).to_plain()
    except Exception as error:  # the task's outermost loop: Spark shows the traceback of what is raised on
        starts = starts_since_progress(work, worker, attempt + 1)
        if starts < tries:
            raise
        _LOG.exception("worker %d, start %d of %d without an exchange in between", worker, starts, tries)
        return WorkerOutcome(worker, "given_up", f"worker {worker}: {error}").to_plain()


def _run_unless_fenced(plain: Mapping[str, Any], worker: int, attempt: int, grant: TaskGrant) -> WorkerOutcome:
    """Run a worker; a replaced worker leaves with a line in the log, a worker given up in a silence joins again."""
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
    from deepspark_ops.train.host_files.on_host import DriverFiles
    from deepspark_ops.train.host_files.sent_files import share_notes

    work = Path(plain["work"])
    try:
        differences = version_note(worker, plain.get("versions", {}))
    except ConfigError as error:
        return WorkerOutcome(worker, "refused", str(error))  # the driver learns it from the task's end
    driver_files = DriverFiles.of_task(plain, plain.get(HIDDEN_RUN))
    if attempt and driver_files is not None:
        share_notes(driver_files, Path(plain["run_dir"]), note_files(work, worker))
    fault_before = last_fault(work, worker) if attempt else ""
    note_faults(work, worker)
    try:
        devices = devices_in_task(
            RunDevices.from_plain(plain["devices"]),
            worker,
            grant,
            core_share=lambda: executor_share(int(plain["n_workers"])),
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
        fault_before,
        differences,
        driver_files,
    )
    return run_worker(task, connect(plain["address"], confirms_later=True))
