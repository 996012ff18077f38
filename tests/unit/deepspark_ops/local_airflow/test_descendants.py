"""Nothing of the services is left: orphans are found, and what ignores SIGTERM is killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a separate process: the call ends every process below its caller.
SCRIPT = """
import os, subprocess
from deepspark_ops.local_airflow.descendants import adopt_orphans, descendants, end_descendants
adopt_orphans()
shell = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600 & echo $!"], stdout=subprocess.PIPE)
orphan = int(shell.stdout.readline())
shell.wait()
assert descendants(os.getpid()) == [orphan]
end_descendants(0.1)
assert descendants(os.getpid()) == []
"""


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted by a call that Linux alone has")
def test_an_orphan_that_ignores_sigterm_is_ended() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=60)
