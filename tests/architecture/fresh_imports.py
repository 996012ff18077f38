"""Says which packages a statement loads: ``python -m tests.architecture.fresh_imports`` reads and prints JSON.

Each statement runs in a fork of a process that has loaded foreign packages alone. So no statement sees our modules of
another statement, and slow packages are imported once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from tests.paths import ROOT


def loaded_packages(first: str, statements: Sequence[str]) -> dict[str, set[str]]:
    """Return statement -> top packages that are loaded after the statement. ``first`` runs before, so its packages are
    included.

    Raises:
        AssertionError: A statement raised; the message has its traceback.
    """
    completed = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps([first, *statements]), cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    return {statement: set(names) for statement, names in json.loads(completed.stdout).items()}


def _in_a_fork(statement: str) -> list[str]:
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        exec(statement, {})  # a traceback of it is the message
        with os.fdopen(writing, "w") as out:
            json.dump(sorted({name.partition(".")[0] for name in sys.modules}), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(f"failed: {statement}")
    return list(json.loads(text))


if __name__ == "__main__":
    first, *statements = json.load(sys.stdin)
    exec(first, {})
    json.dump({statement: _in_a_fork(statement) for statement in statements}, sys.stdout)
