"""The command with its real stages: what fails in a stage's process, and what Ctrl-C leaves behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deepspark_ops.command import cli
from tests.integration.small_run import NET, SOLVER, make_dataset

pytestmark = pytest.mark.tf

DEEPSPARK = [sys.executable, "-m", "deepspark_ops.command.cli"]


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = tmp_path_factory.mktemp("dataset")
    make_dataset(root)
    return root


@pytest.fixture
def solver(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER.format(net=tmp_path / "net.prototxt"))
    return tmp_path / "solver.prototxt"


def test_missing_source_of_ingest(tmp_path):
    result = invoke("ingest", tmp_path / "none.txt", "--output", tmp_path / "out")
    assert result.stderr == f"error: source={tmp_path}/none.txt: no such file or folder\n"
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_empty_list(tmp_path):
    (tmp_path / "list.txt").write_text("")
    result = invoke("ingest", tmp_path / "list.txt", "--output", tmp_path / "out")
    assert result.stderr == f"error: {tmp_path}/list.txt: the image list is empty: no line\n"
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


@pytest.mark.spark
@pytest.mark.slow
def test_interrupt_ends_every_process(tmp_path, dataset, solver):
    command = [*DEEPSPARK, "train", str(solver), "--dataset", str(dataset), "--run-dir", str(tmp_path / "run")]
    command += ["--overrides", "max_iter: 1000000 display: 20", "--n-workers", "2"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A shell starts its background jobs with the signal ignored, and a test run may be one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        for line in process.stdout:
            if " loss " in line:
                break
        children = descendants(process.pid)
        assert len(children) >= 4  # the stage, Spark's JVM, the exchange server, workers
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[0]
    finally:
        process.kill()
    assert process.returncode == 130
    assert rest.splitlines()[-1] == "interrupted"
    deadline = time.monotonic() + 20
    while (alive := [pid for pid in children if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert alive == []


def descendants(root):
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
