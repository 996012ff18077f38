from __future__ import annotations

from pathlib import Path

from click.testing import Result

from deepspark_ops.events import format_event
from deepspark_ops.run_paths import RunPaths
from tests.reference.command_line import invoke
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines

NET = 'layer { name: "l" type: "EuclideanLoss" bottom: "a" bottom: "b" top: "loss" }'


def run_folder(folder: Path) -> Path:
    run = RunPaths(folder / "run")
    run.root.mkdir()
    run.net.write_text(NET)
    run.solver.write_text('net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 1000 display: 100')
    run.events.write_bytes(lines())
    return run.root


def log(*arguments: object) -> Result:
    return invoke("log", *arguments)


def test_a_log_is_printed_in_the_words_of_the_run_or_of_caffe(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    result = log(folder)
    assert (result.exit_code, result.stdout) == (0, "".join(f"{format_event(event)}\n" for event in RUN))
    shown = log(folder, "--caffe").stdout
    assert "solver.cpp:272] Solving LeNet\n" in shown
    assert "    Train net output #0: loss = 1.0 (* 1 = 1.0 loss)\n" in shown


def test_a_log_is_written_into_a_file(tmp_path: Path) -> None:
    folder, output = run_folder(tmp_path), tmp_path / "logs" / "caffe.log"
    result = log(folder, "--caffe", "--output", output)
    assert (result.exit_code, result.stdout) == (0, f"log={output}\n")
    assert output.read_text() == log(folder, "--caffe").stdout


def test_a_folder_without_a_run_is_refused_with_a_remedy(tmp_path: Path) -> None:
    result = log(tmp_path, "--caffe", "--output", tmp_path / "caffe.log")
    assert result.exit_code == 2
    assert f"run_dir={tmp_path}: no events.jsonl is there; give the folder of a run of deepspark train" in result.stderr
    RunPaths(tmp_path).events.write_bytes(lines())
    result = log(tmp_path, "--caffe", "--output", tmp_path / "caffe.log")
    assert result.exit_code == 2
    assert "solver.prototxt: no such file" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl"]
