"""The line protocol of every contender: a process gets ready, then times a block of steps per line of input.

Input: ``step 20`` or ``forward 20``. Output: a line of JSON, ``{"seconds": s, "cpu_seconds": s}``. The first line
has the facts of the contender, with the peak memory of the steps before a forward pass. This file uses the standard
library alone, since each framework has an environment of its own.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

Run = Callable[[int], object]
"""Does n steps, or n forward passes, and returns when all are done."""
WARM_UP_STEPS = 3
_ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # from the import on, what libraries print goes to the log: kernels run while a net is compiled


def serve(runs: Mapping[str, Run], facts: Mapping[str, Any], begin: Callable[[], float]) -> None:
    """Warm up, print ``facts`` with the loss of the first step, and answer until the input ends.

    Args:
        runs: ``step`` and ``forward`` -> function that does a number of steps. Only ``forward`` compiles the pass.
        facts: Facts for the driver, such as the number of weights.
        begin: Function that returns the training loss of the first weights.
    """
    first_loss = begin()
    runs["step"](WARM_UP_STEPS)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    runs["forward"](1)
    say({**facts, "first_loss": first_loss, "peak_mib": peak})
    for line in sys.stdin:
        kind, n_steps = line.split()
        start, cpu_start = time.perf_counter(), time.process_time()
        runs[kind](int(n_steps))
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        say({"seconds": seconds, "cpu_seconds": cpu_seconds})


def say(values: Mapping[str, Any]) -> None:
    """Write a line of JSON to the driver."""
    _ANSWERS.write(json.dumps(values) + "\n")
    _ANSWERS.flush()
