"""A worker as a child process of the driver: ``python -m deepspark_ops.train.worker``.

The driver writes three lines of JSON to stdin. The first line has the worker's devices: TensorFlow loads while the
driver prepares the exchange. The second line has the worker's id and earlier starts. The third line has the settings of
``run_in_task``. The process answers with its outcome, a line of JSON on stdout; every other output goes to stderr.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.devices.in_task import TaskGrant, show_only
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.processes.stage_process import log_to_stderr
from deepspark_ops.train.worker.spark_task import run_in_task


def main() -> int:
    """Run the worker of the lines on stdin; return the exit code."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a library's print is no outcome
    log_to_stderr(logging.WARNING)
    devices = _next_line()["devices"]
    if devices is not None:
        _load_tensorflow(AssignedDevices.from_plain(devices))
    start, settings = _next_line(), _next_line()
    settings["address"] = ExchangeAddress.from_plain(settings["address"])
    outcome = run_in_task(settings, start["worker"], start["attempt"], TaskGrant())
    answers.write(json.dumps(outcome) + "\n")
    answers.flush()
    return 0


def _next_line() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)  # the driver has ended the run before its start
    plain: dict[str, Any] = json.loads(line)
    return plain


def _load_tensorflow(devices: AssignedDevices) -> None:
    show_only(devices, os.environ, sys.modules)
    import deepspark_ops.train.worker.process  # noqa: F401 - imports TensorFlow, which looks for GPUs


if __name__ == "__main__":
    sys.exit(main())
