from __future__ import annotations

import json

import pytest

from deepspark_ops.devices.assigned import AssignedDevices


@pytest.mark.parametrize("devices", [AssignedDevices(), AssignedDevices("gpu", ("1", "GPU-7f"), 3, "as it is")])
def test_comes_back_from_the_json_that_travels(devices: AssignedDevices) -> None:
    assert AssignedDevices.from_plain(json.loads(json.dumps(devices.to_plain()))) == devices
