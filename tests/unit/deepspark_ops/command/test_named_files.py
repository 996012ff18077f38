"""A net of somebody else on the command line: files outside give a warning, and its code does not run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import Result

from deepspark_ops.api import stages
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.preflight.report import PreflightReport
from tests.reference.command_line import invoke

DATA = 'layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 4 } } }'
INNER = 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }'
LOSS = 'layer { name: "l" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "l" }'
SOLVER = 'net: "{}" base_lr: 0.1 lr_policy: "fixed" max_iter: 1'


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("nets", "other", "cwd"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "net.prototxt").write_text(DATA + INNER + LOSS)
    (tmp_path / "other" / "shadow").write_text("root:$6$saltandhash:19000:0:99999:7:::\n")
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("COLUMNS", "400")
    return tmp_path / "nets"


def check_net(nets: Path, net: str, *options: str) -> Result:
    (nets / "s.prototxt").write_text(SOLVER.format(net))
    return invoke("check", nets / "s.prototxt", *options)


def test_a_net_outside_is_read_with_one_warning(nets: Path) -> None:
    result = check_net(nets, "../other/net.prototxt", "--json")
    assert result.exit_code == 0, result.stderr
    report = PreflightReport.model_validate_json(result.stdout)
    lines = [problem.finding for problem in report.problems if "outside of the allowed folders" in problem.finding]
    net, cwd = nets.parent / "other" / "net.prototxt", nets.parent / "cwd"
    named_net = f"../other/net.prototxt ({net})"
    assert lines == [f"{nets}/s.prototxt: net names {named_net}, outside of the allowed folders {nets}, {cwd}"]


def test_a_folder_that_is_allowed_is_no_finding(nets: Path) -> None:
    allowed = ["--allowed-root", "/none", "--allowed-root", str(nets.parent / "other")]
    result = check_net(nets, "../other/net.prototxt", *allowed, "--confined")
    assert result.exit_code == 0, result.stderr
    assert "outside" not in result.stdout + result.stderr


def test_confined_refuses_it(nets: Path) -> None:
    result = check_net(nets, "../other/net.prototxt", "--confined")
    assert result.exit_code == 2
    assert "it is not read; move it there, or allow its folder: --allowed-root" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["check", "plan", "train"])
def test_nothing_of_a_file_outside_is_shown(nets: Path, command: str) -> None:
    (nets / "s.prototxt").write_text(SOLVER.format("../other/shadow"))
    options = ["--run-dir", "r"] if command == "train" else []
    result = invoke(command, nets / "s.prototxt", *options)
    assert result.exit_code == 2
    assert "shadow:1:" in result.stderr
    assert "is no net's prototxt from here on" in result.stderr
    assert "$6$" not in result.stdout + result.stderr
    assert "root:" not in result.stdout + result.stderr


def test_a_python_layers_code_runs_only_if_that_is_said(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a_strangers_module"
    (nets / f"{name}.py").write_text(f"from pathlib import Path\nPath(r'{nets}/was_run').touch()\n")
    monkeypatch.syspath_prepend(nets)
    python = (
        f'layer {{ name: "p" type: "Python" bottom: "x" top: "ip" python_param {{ module: "{name}" layer: "L" }} }}'
    )
    (nets / "net.prototxt").write_text(DATA + python + LOSS)
    result = check_net(nets, "net.prototxt")
    assert result.exit_code == 2
    assert f'module="{name}" is not imported' in result.stderr
    assert not (nets / "was_run").exists()
    for option in (["--python-layers", f"x,{name}"], ["--allow-python-layers"]):
        result = check_net(nets, "net.prototxt", *option)
        assert "registers no layer" in result.stderr  # it was imported
        assert (nets / "was_run").exists()
        (nets / "was_run").unlink()
        monkeypatch.delitem(sys.modules, name)


def test_a_stage_gets_what_was_said(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[TrainConfig] = []
    monkeypatch.setattr(stages, "run_job", lambda module, config, **_: started.append(config))
    monkeypatch.setattr(stages, "require_spark", lambda: None)
    (nets / "s.prototxt").write_text(SOLVER.format("../other/net.prototxt"))
    options = ["--run-dir", "r", "--allowed-root", "../other", "--allowed-root", "x", "--allow-python-layers"]
    result = invoke("train", nets / "s.prototxt", *options)
    assert result.exit_code == 0, result.stderr
    cwd = nets.parent / "cwd"
    named = started[0].named_files
    assert named.allowed_root == (cwd / "../other", cwd / "x")
    assert (named.allow_python_layers, named.confined) == (True, False)


HDF5 = 'layer { name: "d" type: "HDF5Data" top: "x" hdf5_data_param { source: "../other/words" batch_size: 1 } }'
IMAGES = 'layer { name: "d" type: "ImageData" top: "x" image_data_param { source: "../other/words" batch_size: 1 } }'
WINDOWS = (
    'layer { name: "d" type: "WindowData" top: "x" top: "y"'
    ' window_data_param { source: "../other/words" batch_size: 1 } transform_param { crop_size: 2 } }'
)
LEVELDB = 'layer { name: "d" type: "Data" top: "x" data_param { source: "db" backend: LEVELDB batch_size: 1 } }'
LISTS = {
    "a list of HDF5 files": (HDF5, "secretword:x:0\nsecretword2:x:1\n"),
    "a list of an HDF5 file with too long a name": (HDF5, f"secretword{'x' * 300}\n"),
    "a list of an HDF5 file outside": (HDF5, "../secretword\n"),
    "a list of images": (IMAGES, "secretword 3\n"),
    "a list of an image outside": (IMAGES, "../secretword 3\n"),
    "a window file": (WINDOWS, "# 0\nsecretword\n3\n5\n5\n2\n1 0.9 0 0 2 2\n1 0.1 0 0 2 2\n"),
    "a window file outside": (WINDOWS, "# 0\n../secretword\n3\n5\n5\n2\n1 0.9 0 0 2 2\n1 0.1 0 0 2 2\n"),
    "a database's manifest": (LEVELDB, "secretword:x:0\n"),
}


@pytest.mark.parametrize(
    ("listed", "command"),
    [
        *((listed, command) for listed in LISTS for command in ("check", "plan")),
        *(
            pytest.param(listed, "train", marks=pytest.mark.slow)  # in a process, which checks the net as check does
            for listed in ("a list of HDF5 files", "a database's manifest")
        ),
    ],
)
def test_no_word_of_a_list_outside_is_shown(nets: Path, listed: str, command: str) -> None:
    layer, words = LISTS[listed]
    (nets.parent / "other" / "words").write_text(words)
    (nets / "db").mkdir()
    (nets / "db" / "CURRENT").symlink_to(nets.parent / "other" / "words")
    (nets / "net.prototxt").write_text(layer + INNER + LOSS)
    (nets / "s.prototxt").write_text(SOLVER.format("net.prototxt"))
    options = ["--run-dir", "r"] if command == "train" else []
    result = invoke(command, nets / "s.prototxt", *options)
    assert result.exit_code == 2, result.output
    assert "secretword" not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert "words" in result.stderr or "db" in result.stderr or "not shown" in result.stderr
