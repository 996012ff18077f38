"""The notebooks in examples/notebooks run from top to bottom, and a cell that trains can be interrupted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

from deepspark_ops.events import read_events
from tests.integration.small_run import NET, SOLVER, make_dataset
from tests.paths import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.tf,
    pytest.mark.slow,
    pytest.mark.timeout(1_200),
    # Of the kernel's client, which is no part of this project.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NOTEBOOKS = ROOT / "examples" / "notebooks"
CELL_TIMEOUT_S = 600


def executed(name: str, folder: Path) -> Any:
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    client = NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return notebook


def outputs(notebook: Any, source: str, kind: str) -> list[str]:
    """Return the outputs of a kind of media of the cells that contain ``source``."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and source in cell.source]
    assert cells, source
    return [output.data[kind] for cell in cells for output in cell.outputs if kind in output.get("data", {})]


@pytest.fixture(autouse=True)
def _kernel_finds_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.mark.parametrize("name", sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")))
def test_notebook_is_kept_without_outputs(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")


def test_train_and_look(tmp_path: Path) -> None:
    notebook = executed("train_and_look.ipynb", tmp_path)
    progress, card = outputs(notebook, "ds.train(", "text/html")
    assert "300 of 300 minibatches" in progress
    assert "worker" in progress
    assert "Run: LeNet" in card
    assert "<svg" in card
    (sheet,) = outputs(notebook, "dataset.sample(24", "text/html")
    assert sheet.count("<img ") == 24
    (figure,) = outputs(notebook, "run.plot()", "application/vnd.plotly.v1+json")
    assert {trace["legendgroup"] for trace in figure["data"]} >= {"loss", "test_accuracy", "images_per_s", "time"}
    (table,) = outputs(notebook, "kind == 'evaluation'", "text/plain")
    assert "300" in table
    *_, answers = outputs(notebook, "bundle.predict", "text/plain")
    assert "probability" in answers
    (shapes,) = outputs(notebook, "probabilities = net.forward", "text/plain")
    assert "'prob': (8, 10)" in shapes or "(8, 10)" in shapes


def test_compare_strategies(tmp_path: Path) -> None:
    notebook = executed("compare_strategies.ipynb", tmp_path)
    *_, card = outputs(notebook, "ds.compare(", "text/html")
    assert "Comparison of 2 trainings" in card
    (figure,) = outputs(notebook, "comparison.plot()", "application/vnd.plotly.v1+json")
    assert [trace["name"] for trace in figure["data"]] == ["easgd", "sync"]
    *_, simulated = outputs(notebook, "ds.simulate(", "text/html")
    assert "Simulation: LeNet" in simulated


def test_caffe_model_to_onnx_and_keras(tmp_path: Path) -> None:
    notebook = executed("caffe_model_to_onnx_and_keras.ipynb", tmp_path)
    for source in ("ds.Net(net_file", "onnxruntime.InferenceSession", "bundle.keras()"):
        (difference,) = outputs(notebook, source, "text/plain")
        assert float(difference.removeprefix("np.float32(").rstrip(")")) < 1e-6, source


@contextmanager
def kernel(folder: Path) -> Iterator[tuple[Any, Any]]:
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder))
    try:
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def test_interrupted_cell_takes_a_snapshot_and_ends_the_run(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data")
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER.format(net=tmp_path / "net.prototxt"))
    train = (
        "import deepspark_ops as ds\n"
        "ds.train('solver.prototxt', dataset='data', run_dir='run', n_workers=1,\n"
        "         overrides='max_iter: 1000000 display: 20 snapshot: 0 test_interval: 1000000')"
    )
    with kernel(tmp_path) as (manager, client):
        # A kernel may drop requests that follow an error at once.
        training = client.execute(train, stop_on_error=False)
        deadline = time.monotonic() + CELL_TIMEOUT_S
        while not any(event.kind == "loss" for event in read_events(tmp_path / "run" / "events.jsonl")):
            assert time.monotonic() < deadline, "no worker has reported"
            time.sleep(0.2)
        manager.interrupt_kernel()
        reply = reply_to(training, client)
        assert (reply["status"], reply.get("ename")) == ("error", "KeyboardInterrupt"), reply
        look = client.execute("run = ds.open('run')\nassert run.status == 'stopped', run.status\nassert run.snapshots")
        assert reply_to(look, client)["status"] == "ok"
    stages = [event for event in read_events(tmp_path / "run" / "events.jsonl") if event.kind == "stage"]
    assert stages[-1].data["status"] == "stopped"
    assert stages[-1].clock > 0


def reply_to(request: str, client: Any) -> dict[str, Any]:
    """Return the kernel's answer to a request; answers to others are passed over."""
    try:
        while (message := client.get_shell_msg(timeout=CELL_TIMEOUT_S))["parent_header"].get("msg_id") != request:
            pass
    except Empty:
        raise AssertionError("the kernel gave no answer in time") from None
    return dict(message["content"])
