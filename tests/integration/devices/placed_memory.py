"""What placed training steps keep on two devices, measured and forecast, in a process of its own.

``python -m tests.integration.devices.placed_memory [--recompute] [NET:BATCH[:SOLVER FIELDS] ...]`` prints a JSON object
a line: ``net``, ``measured`` and ``forecast``, bytes by device, ``busy`` and ``time``, each device's part of the time
measured and forecast. Without nets: ``CASES``, their large layers made slim.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.devices.device_load import device_loads
from caffe_import.devices.segments import choose_segments
from caffe_import.devices.stages import auto_placement
from caffe_import.devices.step_memory import step_shape
from caffe_import.files.prototxt import parse_solver
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.devices import set_up_devices
from caffe_import.tf_graph.step.device_calls import DeviceCalls
from caffe_import.tf_graph.train_step import compile_training
from tests.integration.whole_net_steps import SOLVER
from tests.reference.live_bytes import busy_shares, live_peaks, recorded_call
from tests.reference.published_nets import published_net

N_DEVICES = 2
CASES = (("squeezenet", 8, ""), ("caffenet", 8, "iter_size: 4"))


def measure(
    name: str, batch_size: int, fields: str, devices: tuple[str, ...], *, slim: bool = True, recompute: bool = False
) -> dict[str, Any]:
    net = published_net(name, batch_size=batch_size, slim=slim)
    solver = solver_spec(parse_solver(f"{SOLVER} {fields}"))
    shape = step_shape(solver, N_DEVICES)
    placement = auto_placement(net, N_DEVICES, shape)
    plan = ComputePlan(placement=placement, recompute=choose_segments(net, placement) if recompute else ())
    function = compile_training(net, solver, n_threads=1, plan=plan, devices=devices)
    calls = function._calls
    assert isinstance(calls, DeviceCalls)
    rng = np.random.default_rng(3)
    arguments = []
    for spec in calls._signature("run").flat():
        values = rng.integers(0, 2, spec.shape) if len(spec.shape) == 1 else 0.01 * rng.standard_normal(spec.shape)
        arguments.append(np.asarray(values, spec.dtype.as_numpy_dtype))
    where = calls._devices("run").flat()
    recorded = recorded_call(calls._trace("run"), arguments, where, N_DEVICES)
    loads = device_loads(net, placement, shape, plan.recompute)
    return {
        "net": name,
        "measured": live_peaks(recorded, arguments, where, N_DEVICES),
        "forecast": [load.memory_bytes for load in loads],
        "busy": busy_shares(recorded, N_DEVICES),
        "time": [load.time / sum(load.time for load in loads) for load in loads],
    }


def main() -> None:
    devices = set_up_devices("cpu", N_DEVICES, n_threads=1).names
    recompute = "--recompute" in sys.argv
    cases = [(*text.split(":", 2), "") for text in sys.argv[1:] if not text.startswith("-")]
    for name, batch_size, fields, *_ in cases or CASES:
        measured = measure(name, int(batch_size), fields, devices, slim=not cases, recompute=recompute)
        sys.stdout.write(json.dumps(measured) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
