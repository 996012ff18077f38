"""Recorded cases on the second logical device of the CPU: ``python -m`` with the dotted name of this file.

TensorFlow splits the CPU only before its first operation. Prints a JSON object: case -> status, faults, bytes moved.
"""

from __future__ import annotations

import json
import sys

from caffe_import.parity.case import load_cases, run_case
from caffe_import.parity.setting import Setting
from caffe_import.tf_graph import predict
from caffe_import.tf_graph.devices import set_up_devices
from tests.paths import FIXTURES
from tests.reference.device_copies import counted_copies

CASES = ("conv_k3", "lenet_mini", "sgd_iter_size3_clip", "snap_batchnorm", "file_shared_net")
DEVICE = Setting("/device:CPU:1")

if __name__ == "__main__":
    set_up_devices("cpu", 2, n_threads=1)
    cases = {case.name: case for case in load_cases(FIXTURES / "caffe")}
    outcomes = {}
    for name in CASES:
        with counted_copies(predict) as copies:
            outcome = run_case(cases[name], DEVICE)
        outcomes[name] = {"status": outcome.status, "faults": outcome.faults, "read_back": sum(copies.to_host)}
    rounded = run_case(cases["lenet_mini"], Setting(arithmetic="bfloat16"))
    outcomes["in 16 bits"] = {"status": rounded.status, "faults": rounded.faults, "worst": rounded.worst}
    json.dump(outcomes, sys.stdout)
