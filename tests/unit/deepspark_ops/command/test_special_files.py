"""Each command refuses a special or far too long file at its entrance: at once, with exit code 2 and one message."""

from __future__ import annotations

import os
import re
import shutil
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from click.testing import Result

from caffe_import.errors import WeightsError
from caffe_import.files.prototxt import read_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.api import stages
from deepspark_ops.evaluate.trained_net import load_params
from tests.paths import FIXTURES
from tests.reference.bundles import make_bundle
from tests.reference.command_line import invoke, run_stage_here
from tests.special_files import SPECIAL_KINDS, make_special

TIME_LIMIT_S = 300
"""A pipe would block for ever. A command starts within seconds, on a busy machine TensorFlow's within a minute."""
FILES = FIXTURES / "caffe" / "files"
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1'
DATA = 'layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 4 } } }'
INNER = 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }'
LOSS = 'layer { name: "l" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "l" }'

ENTRANCES: dict[str, tuple[tuple[str, ...], str]] = {
    "check: solver": (("check", "s.prototxt"), "s.prototxt"),
    "check: net": (("check", "s.prototxt"), "net.prototxt"),
    "check: weights": (("check", "s.prototxt", "--weights", "w.caffemodel"), "w.caffemodel"),
    "check: HDF5 weights": (("check", "s.prototxt", "--weights", "w.h5"), "w.h5"),
    "plan: net": (("plan", "s.prototxt"), "net.prototxt"),
    "upgrade: net": (("upgrade", "net.prototxt", "--output", "new.prototxt"), "net.prototxt"),
    "upgrade: weights": (("upgrade", "w.caffemodel", "--output", "new.caffemodel"), "w.caffemodel"),
    "model show": (("model", "show", "w.caffemodel"), "w.caffemodel"),
    "model diff": (("model", "diff", "w.h5", "w.caffemodel"), "w.caffemodel"),
    "time: net": (("time", "net.prototxt"), "net.prototxt"),
    "test: net": (("test", "net.prototxt", "--weights", "w.caffemodel"), "net.prototxt"),
    "test: weights": (("test", "net.prototxt", "--weights", "w.caffemodel"), "w.caffemodel"),
    "predict: manifest": (("predict", "bundle", "i.png", "--output", "o.parquet"), "bundle/manifest.json"),
    "predict: weights": (("predict", "bundle", "i.png", "--output", "o.parquet"), "bundle/weights.caffemodel"),
    "features: manifest": (
        ("features", "bundle", "i.png", "--output", "o.parquet", "--blobs", "ip"),
        "bundle/manifest.json",
    ),
    "serve: manifest": (("serve", "bundle", "--port", "0"), "bundle/manifest.json"),
    "serve: weights": (("serve", "bundle", "--port", "0"), "bundle/weights.caffemodel"),
    "serve: token": (("serve", "bundle", "--port", "0", "--token-file", "token"), "token"),
}
"""Name -> command, and the file of it that is replaced."""
_IN_A_PROCESS = ("predict", "features")
"""Commands whose stage is a process of its own, which takes seconds to start: the process loads TensorFlow."""
_REAL_PROCESS = ("predict: manifest", "pipe")
"""The entrance that is tested with that process; the others run the stage in this process."""


def _marked(entrance: str, *values: str) -> ParameterSet:
    starts_tensorflow = ENTRANCES[entrance][0][0] in _IN_A_PROCESS
    return pytest.param(entrance, *values, marks=[pytest.mark.tf] if starts_tensorflow else [])


_SPECIAL_ENTRANCES = [
    _marked(entrance, kind)
    for entrance in ENTRANCES
    for kind in SPECIAL_KINDS
    if kind == "pipe"
    or ENTRANCES[entrance][0][0] not in _IN_A_PROCESS  # a pipe would block; other kinds have one reader
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "s.prototxt").write_text(SOLVER)
    (tmp_path / "net.prototxt").write_text(DATA + INNER + LOSS)
    shutil.copy(FILES / "current.caffemodel", tmp_path / "w.caffemodel")
    shutil.copy(FILES / "current.caffemodel.h5", tmp_path / "w.h5")
    (tmp_path / "i.png").write_bytes(b"")
    (tmp_path / "token").write_text("t")
    make_bundle(tmp_path / "bundle")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    return tmp_path


def refused(command: tuple[str, ...]) -> Result:
    """Run a command that must refuse a file with a single message."""
    result = invoke(*command)
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    return result


@contextmanager
def _bounded_memory(kind: str) -> Iterator[None]:
    """Refuse that an endless device is read; tracing would slow the imports of all other commands to a third."""
    if kind != "device":
        yield
        return
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 2**28
    finally:
        tracemalloc.stop()


@pytest.mark.timeout(TIME_LIMIT_S)
@pytest.mark.parametrize(("entrance", "kind"), _SPECIAL_ENTRANCES)
def test_a_special_file_is_refused_at_once(
    folder: Path, entrance: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, replaced = ENTRANCES[entrance]
    if (entrance, kind) != _REAL_PROCESS:
        monkeypatch.setattr(stages, "run_job", run_stage_here)
    with make_special(kind, folder / replaced), _bounded_memory(kind):
        result = refused(command)
    assert Path(replaced).name in result.stderr, result.stderr
    assert re.search(rf"{SPECIAL_KINDS[kind]}|is a folder|no such file|missing", result.stderr), result.stderr


@pytest.mark.timeout(TIME_LIMIT_S)
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_the_weights_that_evaluate_scores_are_a_regular_file(folder: Path, kind: str) -> None:
    net = build_net_spec(read_net(FILES / "model_net.prototxt"), phase="TEST")
    with make_special(kind, folder / "w.caffemodel") as path, pytest.raises(WeightsError, match=SPECIAL_KINDS[kind]):
        load_params(net, path)


@pytest.mark.timeout(TIME_LIMIT_S)
@pytest.mark.parametrize(
    "entrance",
    [_marked(name) for name in ENTRANCES if "HDF5" not in name and "bundle/weights" not in ENTRANCES[name][1]],
)
def test_a_far_too_long_file_is_refused_unread(folder: Path, entrance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "run_job", run_stage_here)
    command, replaced = ENTRANCES[entrance]
    os.truncate(folder / replaced, 2**41)
    result = refused(command)
    assert "bytes" in result.stderr, result.stderr


@pytest.mark.timeout(TIME_LIMIT_S)
@pytest.mark.parametrize(
    "command", [("check", "s.prototxt"), ("upgrade", "z", "--output", "new"), ("model", "show", "z")]
)
def test_a_device_without_end_is_named(folder: Path, command: tuple[str, ...]) -> None:
    (folder / "s.prototxt").write_text('net: "/dev/zero" base_lr: 0.1 lr_policy: "fixed" max_iter: 1')
    (folder / "z").symlink_to("/dev/zero")
    assert "a device; only regular files are read" in refused(command).stderr
