from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from caffe_import.files.datum import encode_datum
from deepspark_ops.config.base import MemorySize
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.preflight.inspect_solver import inspect_solver
from deepspark_ops.preflight.memory import by_layer
from deepspark_ops.preflight.report import MemoryReport, PreflightReport
from deepspark_ops.preflight.table import report_view
from deepspark_ops.shards.files.lmdb_shard import sample_key, write_lmdb_shard

LAYERS = 12
BATCH, VALUES = 64, 4 * 32 * 32
TOP = 4 * BATCH * VALUES
MIB = 2**20


@pytest.fixture(autouse=True)
def _with_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")  # without oneDNN the columns of convolutions outweigh these nets


@pytest.fixture
def solver(tmp_path: Path) -> Path:
    image = np.zeros((1, 32, 32), np.uint8)
    write_lmdb_shard(tmp_path / "lmdb", [(sample_key(k, "x"), encode_datum(image, k % 2)) for k in range(8)])
    net = f"""layer {{ name: "data" type: "Data" top: "t0" top: "y"
      data_param {{ source: "lmdb" batch_size: {BATCH} backend: LMDB }} }}\n"""
    for k in range(LAYERS):
        net += f"""layer {{ name: "conv{k}" type: "Convolution" bottom: "t{k}" top: "t{k + 1}"
          convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 }} }}
        layer {{ name: "tanh{k}" type: "TanH" bottom: "t{k + 1}" top: "t{k + 1}" }}\n"""
    net += f"""layer {{ name: "ip" type: "InnerProduct" bottom: "t{LAYERS}" top: "ip"
      inner_product_param {{ num_output: 2 }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }}\n"""
    (tmp_path / "net.prototxt").write_text(net)
    path = tmp_path / "solver.prototxt"
    path.write_text('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 9 momentum: 0.9 solver_mode: CPU')
    return path


def memory_report(solver: Path, **options: object) -> PreflightReport:
    return inspect_solver(CheckConfig(solver=solver, memory=True, **options))


def memory(solver: Path, **options: object) -> MemoryReport:
    needed = memory_report(solver, **options).memory
    assert needed is not None
    return needed


def test_rows_say_what_each_layer_keeps_and_what_its_parameters_take(solver: Path) -> None:
    report = memory_report(solver)
    rows = {row["layer"]: row for row in json.loads(report.model_dump_json())["rows"]}
    assert rows["tanh3"]["activation_bytes"] == TOP
    assert rows["conv3"]["bytes"] == 3 * 4 * (4 * 4 * 9 + 4)  # parameters, gradients, history
    assert sum(row["recompute_bytes"] for row in rows.values()) < sum(row["activation_bytes"] for row in rows.values())
    assert inspect_solver(CheckConfig(solver=solver)).rows == ()


def test_the_table_has_layers_and_verdict(solver: Path) -> None:
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(report_view(memory_report(solver, memory_limit="5MiB")))
    text = console.export_text()
    assert "Memory by layer" in text
    assert "does not fit" in text


def test_where_recompute_is_enough_it_is_named_and_then_fits(solver: Path) -> None:
    needed = memory(solver)
    between = (needed.step_bytes + needed.recompute_step_bytes) // 2
    needed = memory(solver, memory_limit=between)
    assert not needed.fits
    assert any(line.startswith("--recompute: needs about") for line in needed.advice)
    assert needed.largest_batch < BATCH < needed.recompute_largest_batch
    assert memory(solver, memory_limit=between, recompute=True).fits


def test_the_largest_batch_size_fits_and_the_next_does_not(solver: Path) -> None:
    needed = memory(solver, memory_limit="9MiB")
    text = (solver.parent / "net.prototxt").read_text()
    fits = []
    for size in (needed.largest_batch, needed.largest_batch + 1):
        (solver.parent / "net.prototxt").write_text(text.replace(f"batch_size: {BATCH}", f"batch_size: {size}"))
        fits.append(memory(solver, memory_limit="9MiB").fits)
    assert fits == [True, False]


def test_a_placement_that_fits_is_named(solver: Path) -> None:
    step_bytes = memory(solver).step_bytes
    advice = memory(solver, memory_limit=int(0.7 * step_bytes)).advice
    assert any(line.startswith("--placement auto --gpus-per-worker 2: about") for line in advice)


def test_without_a_limit_the_host_counts_for_all_workers(solver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_layer, "host_memory_bytes", lambda: 2500 * MIB)
    two, five = memory(solver, n_workers=2), memory(solver, n_workers=5)
    assert two.room == "this machine, for 2 workers and the driver"
    assert two.fits
    assert not five.fits
    assert "fewer workers on this machine, or more machines" in five.advice


def test_a_gpu_counts_where_solver_mode_asks_for_one(solver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_layer, "gpu_memory_bytes", lambda _: 3 * MIB)
    assert "GPU" not in memory(solver).room
    needed = memory(solver, overrides="solver_mode: GPU")
    assert needed.room == "the smallest GPU of this host"
    assert not needed.fits


@pytest.mark.parametrize(
    ("text", "expected"), [("8GiB", 8 * 2**30), ("1.5 g", 3 * 2**29), ("500M", 500 * MIB), ("12", 12), (77, 77)]
)
def test_sizes(text: str | int, expected: int) -> None:
    assert TypeAdapter(MemorySize).validate_python(text) == expected


@pytest.mark.parametrize("text", ["", "8 apples", "-1", "0"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(MemorySize).validate_python(text)
