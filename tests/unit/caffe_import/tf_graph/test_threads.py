from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from caffe_import.tf_graph.threads import set_threads

pytestmark = pytest.mark.tf

SCRIPT = """
import logging, tensorflow as tf
from caffe_import.tf_graph.threads import set_threads
logging.basicConfig(level=logging.WARNING, format="%(message)s")
set_threads(3)
print(tf.config.threading.get_intra_op_parallelism_threads(), tf.config.threading.get_inter_op_parallelism_threads())
tf.zeros(1) + 1
set_threads(3)
set_threads(2)
"""


def test_threads_are_set_once_and_a_later_change_is_said() -> None:
    completed = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert completed.stdout.split() == ["3", "2"]
    warnings = [line for line in completed.stderr.splitlines() if "n_threads=" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith("n_threads=2 has no effect: TensorFlow is already running in this process with 3")


def test_less_than_one_thread_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(ValueError, match="n_threads=0: must be at least 1"):
        set_threads(0)
