"""Options about a worker's devices through the command: mistakes in one message, what check shows of a placement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.reference.command_line import invoke

NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 4 dim: 20 } shape { dim: 4 } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: 30 } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 10 snapshot_prefix: "x"'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return tmp_path


def check_solver(*options: str) -> Result:
    return invoke("check", "solver.prototxt", *options)


@pytest.mark.parametrize(
    ("text", "n_devices", "message"),
    [
        (
            "ip1: 0\nip3: 1",
            2,
            "{folder}/p.txt:2: 'ip3' names no layer of the training net; did you mean \"ip2\"?; its layers: data, ip1,"
            " relu1, ip2, loss",
        ),
        ("ip1: 2", 2, "{folder}/p.txt:1: there is no device 2: allowed: 0 to 1; or give gpus_per_worker=3"),
        (
            "relu1: split 0 1",
            2,
            '{folder}/p.txt:1: layer "relu1" (ReLU) cannot be split; allowed: InnerProduct, whose outputs are computed'
            " independently",
        ),
        (
            "ip2: split 0 1 2",
            3,
            '{folder}/p.txt:1: layer "ip2" (InnerProduct) has 2 outputs, fewer than the 3 devices to share them',
        ),
        (
            "ip1 = 0",
            2,
            "{folder}/p.txt:1: found 'ip1 = 0'; expected 'LAYERS: DEVICE' or 'LAYERS: split DEVICE DEVICE ...'",
        ),
        (
            None,
            2,
            "placement {folder}/p.txt: No such file or directory; expected 'LAYERS: DEVICE' or 'LAYERS: split DEVICE"
            " DEVICE ...', a line each",
        ),
    ],
)
def test_a_wrong_placement_is_one_message_and_exit_code_2(
    folder: Path, text: str | None, n_devices: int, message: str
) -> None:
    if text is not None:
        (folder / "p.txt").write_text(text)
    result = check_solver("--gpus-per-worker", str(n_devices), "--placement", "p.txt")
    assert result.stderr == f"error: {message.format(folder=folder)}\n"
    assert result.exit_code == 2


def test_more_devices_than_the_net_has_parts_is_one_message_and_exit_code_2() -> None:
    result = check_solver("--gpus-per-worker", "5", "--placement", "auto")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: placement=auto: gpus_per_worker=5, but the training net can be cut into at most 3 stages; give fewer"
        " devices, or a placement file that splits layers\n"
    )


def test_no_device_is_one_message_and_exit_code_2() -> None:
    result = check_solver("--gpus-per-worker", "0")
    assert result.exit_code == 2
    assert result.stderr == "error: gpus_per_worker=0: Input should be greater than or equal to 1\n"


def test_check_shows_what_each_device_gets(folder: Path) -> None:
    (folder / "p.txt").write_text("ip1: 0\nip2: 1\n")
    shown = check_solver("--gpus-per-worker", "2", "--placement", "p.txt")
    assert shown.exit_code == 0
    table = shown.stdout[shown.stdout.index("Devices of a worker") :]
    assert "data .. relu1" in table
    assert "ip2 .. loss" in table
    report = json.loads(check_solver("--gpus-per-worker", "2", "--placement", "p.txt", "--json").stdout)
    assert [row["layers"] for row in report["devices"]] == [["data", "ip1", "relu1"], ["ip2", "loss"]]
    assert report["devices"][1]["border_bytes"] == 4 * 4 * 30
    assert sum(row["time_share"] for row in report["devices"]) == pytest.approx(1)
    assert json.loads(check_solver("--json").stdout)["devices"] == []


def test_check_says_how_long_devices_wait_for_each_other() -> None:
    shown = check_solver("--gpus-per-worker", "2", "--placement", "auto")
    assert "note: with iter_size 1 the 2 devices wait for each other 50 % of the time" in " ".join(shown.stdout.split())


def test_check_says_that_one_device_needs_no_placement() -> None:
    shown = " ".join(check_solver("--placement", "auto").stdout.split())
    assert "note: placement: there is nothing to lay out with gpus_per_worker=1; give the number of devices" in shown
    assert "placement" not in check_solver().stdout
