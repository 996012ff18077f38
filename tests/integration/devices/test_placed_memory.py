from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.integration.devices.placed_memory import CASES
from tests.paths import ROOT

pytestmark = [pytest.mark.tf, pytest.mark.long]


@pytest.mark.parametrize("onednn", [pytest.param("0", id="without oneDNN"), pytest.param("1", id="with oneDNN")])
def test_devices_keep_what_was_forecast_within_15_percent(onednn: str) -> None:
    # TensorFlow leaves oneDNN out on CPUs with AVX2 alone; both forms compute on every x86 CPU.
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": onednn}
    command = [sys.executable, "-m", "tests.integration.devices.placed_memory"]
    completed = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    measured = [json.loads(line) for line in completed.stdout.splitlines()]
    assert [case["net"] for case in measured] == [name for name, _, _ in CASES]
    for case in measured:
        assert case["forecast"] == pytest.approx(case["measured"], rel=0.15), case
