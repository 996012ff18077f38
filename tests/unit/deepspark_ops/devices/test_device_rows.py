"""Rows and advice about a placement's devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.devices.unnamed_layers import place_all
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.net_spec import build_net_spec
from caffe_import.solver.solver_spec import SolverSpec, solver_spec
from deepspark_ops.devices.device_rows import DeviceRow, device_rows, placement_notes, step_time

LAYER = """layer {{ name: "ip{k}" type: "InnerProduct" bottom: "{bottom}" top: "ip{k}"
  inner_product_param {{ num_output: 500 }} }}"""
NET = build_net_spec(
    parse_net(
        'layer { name: "data" type: "Input" top: "ip0" input_param { shape { dim: 50 dim: 500 } } }'
        + "".join(LAYER.format(k=k, bottom=f"ip{k - 1}") for k in range(1, 5))
        + 'layer { name: "loss" type: "Reduction" bottom: "ip4" top: "loss" loss_weight: 1 }'
    ),
    phase="TRAIN",
)


def solver_of(iter_size: int) -> SolverSpec:
    message = parse_solver(f'net: "n" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 iter_size: {iter_size}')
    return solver_spec(message)


def rows_of(iter_size: int = 1, n_devices: int = 4, **devices: int) -> tuple[DeviceRow, ...]:
    placement = place_all({name: (device,) for name, device in devices.items()}, NET, n_devices)
    return device_rows(ComputePlan(placement=placement), NET, solver_of(iter_size))


EQUAL = {"ip1": 0, "ip2": 1, "ip3": 2, "ip4": 3}


def test_no_placement_has_no_rows_and_no_advice() -> None:
    assert device_rows(ComputePlan(n_replicas=4), NET, solver_of(1)) == ()
    assert placement_notes((), solver_of(1), is_asked=False) == []
    [note] = placement_notes((), solver_of(1), is_asked=True)
    assert note.startswith("placement: there is nothing to lay out with gpus_per_worker=1; give the number of devices")


@pytest.mark.parametrize("n_passes", [1, 4, 12])
def test_equal_stages_idle_as_gpipe_says(n_passes: int) -> None:
    total_ms = step_time([7.0] * 4, n_passes)
    assert 1 - n_passes * 7.0 / total_ms == pytest.approx(3 / (n_passes + 3))
    rows = [replace(row, time_share=0.25) for row in rows_of(n_passes, **EQUAL)]
    assert sum(row.time_share for row in rows) == 1


def test_each_row_has_its_part_of_the_time_and_waits_for_the_rest() -> None:
    rows = rows_of(1, 2, ip1=0, ip4=1)
    assert sum(row.time_share for row in rows) == pytest.approx(1)
    assert rows[0].time_share > 1.5 * rows[1].time_share
    assert [row.idle_share for row in rows] == pytest.approx([rows[1].time_share, rows[0].time_share])
    many_pass_rows = rows_of(1000, 2, ip1=0, ip4=1)
    assert many_pass_rows[0].idle_share < 0.01
    assert many_pass_rows[1].idle_share == pytest.approx(
        1 - many_pass_rows[1].time_share / many_pass_rows[0].time_share, abs=0.01
    )


def test_a_row_says_its_first_and_last_layer() -> None:
    rows = rows_of(1, 3, ip1=0, ip4=1)
    assert str(rows[0]).startswith("device 0: data .. ip3 (4 layers), ")
    assert rows[2].extent == "no layer"


def test_waiting_devices_are_told_how_many_passes_keep_them_busy() -> None:
    [note] = placement_notes(rows_of(2, **EQUAL), solver_of(2), is_asked=True)
    assert note.startswith("with iter_size 2 the 4 devices wait for each other ")
    assert "iter_size 12 with a batch_size 6 times smaller is the same minibatch" in note
    assert placement_notes(rows_of(12, **EQUAL), solver_of(12), is_asked=True) == []


def test_a_device_without_layers_and_one_with_most_of_the_work_are_named() -> None:
    notes = placement_notes(rows_of(64, 4, ip1=0, ip4=1, loss=2), solver_of(64), is_asked=True)
    assert notes[0] == "device 3 computes no layer; give gpus_per_worker=3 or name it in the placement"
    assert notes[1].startswith("device 0 (data .. ip3) has ")
    assert "of their time is idle however many passes a step has; give it fewer layers" in notes[1]
    assert len(notes) == 2
