"""The workers of a host in a network namespace: ``python -m tests.integration.exchange.tree_host 0 1 2 3``."""

from __future__ import annotations

import json
import sys
import threading
import time

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.state.grants import Grant
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from tests.unit.deepspark_ops.exchange.exchange_run import work

STEP_S = 0.03


def _compute(_grant: Grant) -> None:
    time.sleep(STEP_S)


def main() -> None:
    """Work to the end of the run; the first line of standard input is the server's address."""
    address = ExchangeAddress.from_plain(json.loads(sys.stdin.readline()))
    threads = [
        threading.Thread(target=work, args=(connect(address), int(worker)), kwargs={"want": 1, "between": _compute})
        for worker in sys.argv[1:]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
