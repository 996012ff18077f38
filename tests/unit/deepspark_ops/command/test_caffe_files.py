from __future__ import annotations

import json
from pathlib import Path

import pytest

from caffe_import.files.caffemodel import read_caffemodel
from caffe_import.files.mean_file import read_mean
from tests.paths import FIXTURES
from tests.reference.command_line import invoke

FILES = FIXTURES / "caffe" / "files"
MODEL, EXTRA = str(FILES / "current.caffemodel"), str(FILES / "double_extra_layer.caffemodel")


def test_show_has_a_row_for_each_blob() -> None:
    shown = invoke("model", "show", MODEL)
    assert shown.exit_code == 0, shown.output
    assert "conv1  Convolution   0     4 x 1 x 3 x 3" in shown.stdout
    assert shown.stdout.endswith("2 layers with 4 blobs, 235 values\n")
    blobs = json.loads(invoke("model", "show", MODEL, "--json").stdout)["blobs"]
    assert [(blob["layer"], blob["index"]) for blob in blobs] == [("conv1", 0), ("conv1", 1), ("ip1", 0), ("ip1", 1)]


def test_diff_names_what_one_file_lacks() -> None:
    assert invoke("model", "diff", MODEL, MODEL).stdout == "every blob is the same\n"
    shown = invoke("model", "diff", MODEL, EXTRA)
    assert "not there | 2 x 2" in shown.stdout
    assert shown.stdout.endswith("1 blob differs\n")
    answer = json.loads(invoke("model", "diff", MODEL, EXTRA, "--json").stdout)
    assert (answer["is_equal"], answer["blobs"][0]["shapes"]) == (False, [None, [2, 2]])


def test_edit_writes_what_was_asked_for(tmp_path: Path) -> None:
    output = tmp_path / "new.caffemodel"
    edits = ("--rename", "conv1=first", "--drop", "ip1", "--copy", f"{EXTRA}:somewhere_else=last")
    result = invoke("model", "edit", MODEL, *edits, "--output", str(output))
    assert result.exit_code == 0, result.output
    assert {name for name, blobs in read_caffemodel(output).items() if blobs} == {"first", "last"}
    assert result.stdout.endswith(f"weights={output}\n")


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ((), "nothing to do; give --rename OLD=NEW"),
        (("--rename", "conv1"), "--rename conv1: allowed: OLD=NEW"),
        (("--copy", "conv1"), "--copy conv1: allowed: FILE:LAYER, or FILE:LAYER=NAME"),
        (("--drop", "conv"), 'has no layer "conv"; did you mean "conv1"?'),
    ],
)
def test_a_mistake_is_one_message_and_nothing_is_written(edits: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = invoke("model", "edit", MODEL, *edits, "--output", str(tmp_path / "new.caffemodel"))
    assert result.exit_code == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_upgrade_says_what_changed(tmp_path: Path) -> None:
    old = str(FIXTURES / "caffe" / "upgrade" / "solver_enum_sgd.prototxt")
    result = invoke("upgrade", old, "--output", str(tmp_path / "new.prototxt"))
    assert result.stdout == f'solver_type: SGD -> type: "SGD"\nsolver={tmp_path}/new.prototxt\n'
    second_result = invoke("upgrade", str(tmp_path / "new.prototxt"), "--output", str(tmp_path / "new.prototxt"))
    assert second_result.stdout.startswith("nothing to upgrade: it has the current form\n")
    gone = invoke("upgrade", str(tmp_path / "gone"), "--output", str(tmp_path / "x"))
    assert gone.exit_code == 2
    assert "no such file; give the net or solver's prototxt" in gone.stderr


def test_mean_prints_lines_for_transform_param_and_writes_the_file(tmp_path: Path) -> None:
    data, output = FIXTURES / "caffe" / "data", tmp_path / "mean.binaryproto"
    result = invoke("model", "mean", str(data / "lmdb_raw"), "--output", str(output))
    assert result.exit_code == 0, result.output
    assert output.read_bytes() == (data / "mean.binaryproto").read_bytes()
    head, *values, tail = result.stdout.splitlines()
    assert (head, tail) == ("7 images of 3 x 14 x 17", f"mean_file={output}")
    assert [float(line.removeprefix("mean_value: ")) for line in values] == pytest.approx(
        read_mean(output).astype(float).mean(axis=(1, 2)).tolist(), rel=1e-6
    )
    answer = json.loads(invoke("model", "mean", str(data / "lmdb_raw"), "--json").stdout)
    assert (answer["n_images"], answer["shape"], answer["output"]) == (7, [3, 14, 17], None)
    assert answer["mean_values"] == [float(line.removeprefix("mean_value: ")) for line in values]
    wrong = invoke("model", "mean", str(tmp_path), "--output", str(tmp_path / "no"))
    assert wrong.exit_code == 2
    assert "found neither an LMDB" in wrong.stderr


def test_mean_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepspark_ops.command.caffe_files._LINE_IMAGES", 5)
    result = invoke("model", "mean", str(FIXTURES / "caffe" / "data" / "lmdb_raw"), "--json")
    assert result.stderr == "7/7 images\n"
    assert json.loads(result.stdout)["n_images"] == 7
