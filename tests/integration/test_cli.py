"""The command with its real stages: what fails in a stage's process, and what Ctrl-C leaves behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deepspark_ops.events import read_events
from tests.integration.small_run import NET, SOLVER
from tests.processes import is_alive
from tests.reference.command_line import invoke

pytestmark = pytest.mark.tf

DEEPSPARK = [sys.executable, "-m", "deepspark_ops.command.cli"]


@pytest.fixture
def solver(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER.format(net=tmp_path / "net.prototxt"))
    return tmp_path / "solver.prototxt"


def test_missing_source_of_ingest(tmp_path):
    result = invoke("ingest", tmp_path / "none.txt", "--output", tmp_path / "out")
    assert result.stderr == (
        f"error: source={tmp_path}/none.txt: no such file or folder\n"
        "cause: the path is wrong, or starts from another folder\n"
        "remedy: Give the path from the present folder, or an absolute path\n"
    )
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_empty_list(tmp_path):
    (tmp_path / "list.txt").write_text("")
    result = invoke("ingest", tmp_path / "list.txt", "--output", tmp_path / "out")
    assert result.stderr == (
        f"error: {tmp_path}/list.txt: the image list is empty: no line\n"
        "cause: no line of the list is `path label`\n"
        "remedy: Write a line for each image: the path, a blank, the label\n"
    )
    assert result.exit_code == 2


def test_dataset_that_is_not_there(tmp_path, solver):
    result = invoke("train", solver, "--run-dir", tmp_path / "run", "--dataset", tmp_path / "none")
    assert result.stderr == (
        f'error: dataset={tmp_path}/none: no such folder; run "deepspark ingest" first, or give its --output\n'
    )
    assert result.exit_code == 2
    assert not (tmp_path / "run").exists()


def test_run_without_snapshot(tmp_path, dataset, solver):
    result = invoke("export", tmp_path)
    assert result.stderr == (
        f'error: run_dir={tmp_path}: no config.json in it; give the folder that "deepspark train" wrote (option '
        "--run-dir)\n"
    )
    assert result.exit_code == 2
    assert not (tmp_path / "bundle").exists()


def test_check_of_a_sound_solver(dataset, solver, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = invoke("check", solver, "--dataset", dataset)
    assert result.exit_code == 0, result.output
    assert "patches, train net" in result.stdout
    assert "160 samples of 3x14x16" in result.stdout


def start_training(folder, dataset, solver):
    """Start the command with folders of its own for temporary files; returns the process."""
    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    command = [*DEEPSPARK, "train", str(solver), "--dataset", str(dataset), "--run-dir", str(folder / "run")]
    command += ["--overrides", "max_iter: 1000000 display: 20 snapshot: 0 test_interval: 1000000", "--n-workers", "1"]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(scratch), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch}"},
        # A shell starts background jobs with the signal ignored, and a test run may be such a job.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def lines_until(process, text):
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if text in line:
            return lines
    raise AssertionError("\n".join(lines))


def snapshot_files(folder, iteration):
    names = ("caffemodel", "solverstate", "state.h5")
    return [folder / "run" / "snapshots" / f"patches_iter_{iteration}.{name}" for name in names]


@pytest.mark.spark
@pytest.mark.slow
def test_interrupt_takes_a_snapshot_ends_every_process_and_the_same_command_goes_on(tmp_path, dataset, solver):
    process = start_training(tmp_path, dataset, solver)
    try:
        lines_until(process, " loss ")
        process.send_signal(signal.SIGHUP)
        (saved,) = [line for line in lines_until(process, "driver snapshot ") if "driver snapshot " in line]
        lines_until(process, " loss ")  # it goes on
        children = descendants(process.pid)
        assert len(children) == 3  # the stage, the exchange server, the worker
        process.send_signal(signal.SIGINT)
        last_lines = process.communicate(timeout=120)[0].splitlines()
    finally:
        process.kill()
    assert process.returncode == 130, last_lines
    assert last_lines[-1] == "interrupted"
    first = int(saved.partition("clock=")[2].split()[0])
    (stopped,) = [line for line in last_lines if line.startswith("stopped by SIGINT at clock=")]
    last = int(stopped.partition("clock=")[2].split(":")[0])
    assert 0 < first < last
    assert all(path.is_file() for path in (*snapshot_files(tmp_path, first), *snapshot_files(tmp_path, last)))
    assert "the same command goes on from there" in stopped
    assert not (tmp_path / "run" / "work").exists()
    end = [event for event in read_events(tmp_path / "run" / "events.jsonl") if event.kind == "stage"][-1]
    assert (end.data["status"], end.clock) == ("stopped", last)
    assert alive_after(children, 60.0) == []
    assert [path for path in (tmp_path / "tmp").iterdir() if not path.name.startswith("hsperfdata")] == []

    second_process = start_training(tmp_path, dataset, solver)
    try:
        assert any(
            f"going on from patches_iter_{last}.state.h5: clock {last}" in x
            for x in lines_until(second_process, " loss ")
        )
        children = descendants(second_process.pid)
        second_process.send_signal(signal.SIGTERM)
        last_lines = second_process.communicate(timeout=120)[0]
    finally:
        second_process.kill()
    assert second_process.returncode == 143, last_lines
    assert "stopped by SIGTERM at clock=" in last_lines
    assert alive_after(children, 60.0) == []


def alive_after(pids, timeout_s):
    """Return the processes that live when the time is over, none as soon as all have ended."""
    deadline = time.monotonic() + timeout_s
    while (alive := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return alive


def descendants(root):
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    pids = [root]
    for pid in pids:
        pids += [child for child, parent in parents.items() if parent == pid]
    return pids[1:]
