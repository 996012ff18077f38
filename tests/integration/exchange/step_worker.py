"""A worker whose training can be counted: step k adds 1 to parameter k, and what the server took goes into a file."""

from __future__ import annotations

import time
from pathlib import Path

from deepspark_ops.errors import WorkerFenced
from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.state.grants import Finished, Wait
from deepspark_ops.exchange.transport.connection import ExchangeAddress


def count_steps(address: ExchangeAddress, worker: int, log: Path, *, want: int, pause_s: float) -> None:
    """Work until the run is finished; a worker that was given up joins again, as the tasks of a run do.

    Lines of ``log``: first step and end of each grant whose acknowledgement counted.
    """
    while not _is_finished(address, worker, log, want, pause_s):
        pass


def _is_finished(address: ExchangeAddress, worker: int, log: Path, want: int, pause_s: float) -> bool:
    link = connect(address)
    try:
        link.join(worker)
        local = link.pull()
        with log.open("a", buffering=1) as out:
            while not isinstance(answer := link.request_grant(want), Finished):
                if isinstance(answer, Wait):
                    time.sleep(answer.seconds)
                    continue
                if answer.state_for:
                    link.send_state(answer.state_for, {}, {"history": local[None, :]})
                if answer.count:
                    time.sleep(pause_s)
                    moved = local.copy()
                    moved[answer.start : answer.stop] += 1
                    local, _ = link.exchange(moved)
                if link.acknowledge(answer) and answer.count:
                    out.write(f"{answer.start} {answer.stop}\n")
        link.leave()
    except WorkerFenced:
        return False
    finally:
        link.close()
    return True
