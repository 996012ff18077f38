"""The forecast of a step's memory, with and without recompute, against the counts of TensorFlow's allocator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from caffe_import.devices.onednn import starts_with_onednn
from tests.integration.devices.convolution_columns import CASES

pytestmark = pytest.mark.tf
SMALL, LARGE = "lenet", ("squeezenet", "squeezenet+recompute")
"""The smallest first: what a process has taken before changes its peak. Not cifar10_quick, whose peak depends on what
else the machine does."""
WITH_ONEDNN = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1"}
"""oneDNN's allocator is the one that counts bytes and has a limit. TensorFlow leaves oneDNN out on some CPUs, but
oneDNN computes on every x86 CPU."""
_LEAST_COLUMNS = 4096
"""Kernels without columns take some hundred bytes for themselves."""


@pytest.fixture(scope="module")
def peaks() -> dict[str, dict[str, Any]]:
    return peaks_of(SMALL, *LARGE)


def peaks_of(*cases: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "tests.integration.devices.step_peaks", *cases]
    completed = subprocess.run(command, env=WITH_ONEDNN, capture_output=True, text=True, check=False, timeout=300)
    assert completed.returncode == 0, completed.stderr[-3000:]
    peaks: dict[str, dict[str, Any]] = json.loads(completed.stdout)
    return peaks


@pytest.mark.long
def test_a_graph_of_another_size_keeps_about_the_bytes_that_check_states() -> None:
    command = [sys.executable, "-m", "tests.integration.devices.graph_sizes"]
    completed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    sizes = json.loads(completed.stdout)
    assert sizes["forecast"] == pytest.approx(sizes["measured"], rel=0.4)


def test_the_peak_of_a_step_is_as_forecast() -> None:
    peak = peaks_of(SMALL)[SMALL]
    assert peak["forecast"] == pytest.approx(peak["measured"], rel=0.15)


@pytest.mark.long
@pytest.mark.parametrize("case", LARGE)
def test_the_peak_of_a_large_nets_step_is_as_forecast(peaks: dict[str, dict[str, Any]], case: str) -> None:
    assert peaks[case]["forecast"] == pytest.approx(peaks[case]["measured"], rel=0.15)


@pytest.mark.long
def test_recompute_takes_the_memory_that_was_planned_and_gives_the_same_numbers(
    peaks: dict[str, dict[str, Any]],
) -> None:
    plain, recomputed = peaks["squeezenet"], peaks["squeezenet+recompute"]
    # 0.55 to 0.67 where two kernels run at a time: which two, other work on the machine decides.
    assert recomputed["measured"] < 0.75 * plain["measured"]
    assert (recomputed["loss"], recomputed["params"]) == (plain["loss"], plain["params"])


def test_columns_of_convolutions_on_a_cpu_without_onednn_are_as_forecast() -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "tests.integration.devices.convolution_columns"],
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    columns: dict[str, tuple[int, int]] = json.loads(completed.stdout)
    assert set(columns) == set(CASES)
    for case, (recorded, forecast) in columns.items():
        assert forecast == pytest.approx(recorded, abs=_LEAST_COLUMNS), case


def test_the_forecast_knows_whether_tensorflow_starts_with_onednn() -> None:
    import tensorflow as tf

    refusal = ""
    try:
        tf.config.experimental.get_memory_info("CPU:0")
    except (ValueError, tf.errors.OpError) as error:
        refusal = str(error)
    assert not refusal or "Allocator stats not available" in refusal
    assert starts_with_onednn(os.environ) == (not refusal)  # only oneDNN's allocator counts bytes


@pytest.mark.long  # TensorFlow waits ten seconds for memory that others may give back
def test_a_step_that_finds_no_memory_ends_the_run_with_one_message(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "tests.integration.devices.out_of_memory_run", str(tmp_path)],
        env={**WITH_ONEDNN, "TF_MKL_ALLOC_MAX_BYTES": "300000000"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    (outcome,) = json.loads(completed.stdout.splitlines()[-1])
    assert outcome["ending"] == "refused"  # which ends the run: no other start of the worker helps
    message = outcome["message"]
    assert message.startswith('worker 0: out of memory in layer "drop" (OOM when allocating tensor with shape[')
    for part in ("batch_size=4096, iter_size=1", "tanh 128.0 MiB", "larger iter_size", "--placement auto"):
        assert part in message
