"""The whole DAG deepspark_train, as Airflow runs it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import cv2
import pytest

from deepspark_ops.shards.manifest import read_manifest
from tests.e2e.airflow_instance import AirflowInstance
from tests.e2e.finished_runs import dataset_of, run_from_source, run_on_own_data
from tests.e2e.small_example import FORMATS, SmallExample
from tests.paths import ROOT
from tests.reference.raw_sources import image_bgr

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow, pytest.mark.timeout(1800)]

NO_GPU = "training on the CPU: this host has no nvidia-smi on PATH"


def test_solver_goes_in_and_a_checked_bundle_comes_out(airflow: AirflowInstance) -> None:
    done = run_from_source(airflow)
    run = done.folder
    certificate = json.loads((run / "parity.json").read_text())
    assert not certificate["failed"]
    assert {row["layer_type"]: row["n_passed"] > 0 for row in certificate["parity"]}["SoftmaxWithLoss"]
    metrics = json.loads((run / "evaluation" / "metrics.json").read_text())
    assert metrics["top1"] > 0.8
    assert "Trained on" in (run / "evaluation" / "report.html").read_text()
    assert {path.name for path in (run / "bundle").iterdir()} >= {"saved_model", "weights.caffemodel", "manifest.json"}
    # Lines of the Spark workers reach the log through the driver; one of them may find the work done when it starts.
    reports = [entry for entry in done.log("train") if " loss clock=" in str(entry.get("event"))]
    assert re.search(r"worker [01] loss clock=\d+/200 loss=\S+ lr=\S+ images/s=", str(reports[0]["event"]))
    assert {entry["level"] for entry in reports} == {"info"}
    # The run asked for a GPU, which is Caffe's default, and said once that there was none, if there was none.
    text = "\n".join(done.log_text(task) for task in done.task_states())
    assert text.count(NO_GPU) == (shutil.which("nvidia-smi") is None)


@pytest.mark.long
def test_without_a_source_training_reads_what_the_net_itself_names(airflow: AirflowInstance) -> None:
    done = run_on_own_data(airflow)
    assert "training reads the sources that the net names" in done.log_text("ingest")
    log = done.log_text("train")
    assert re.search(r"worker 0: CPU, \d+ threads?\b", log)
    assert NO_GPU not in log + done.log_text("check")


def test_a_mistake_ends_the_run_in_its_first_task_by_name(airflow: AirflowInstance, example: SmallExample) -> None:
    conf = example.conf(overrides="max_itr: 3")  # others: tests/unit/deepspark_ops/operators
    done = airflow.trigger("deepspark_train", conf)
    done.wait("failed")
    assert done.task_states() == {
        "check": "failed",
        **dict.fromkeys(("ingest", "train", "evaluate", "export"), "upstream_failed"),
    }
    # Last in the task's log, once, and no traceback with or after it: Airflow adds the exit code of the task.
    log = done.log("check")
    (at,) = (n for n, entry in enumerate(log) if 'unknown field "max_itr" in the solver' in str(entry.get("event")))
    assert 'did you mean "max_iter"?' in log[at]["event"]
    told = [str(entry.get("event")) for entry in log[at + 1 :]]
    assert told[:2] == ["Task exited", "::group::Post Execute"]  # folded there: which notifiers were told
    assert not [entry for entry in log if "error_detail" in entry or "Traceback" in str(entry)]


def test_the_conf_of_the_docs_trains_a_folder_of_pictures_as_they_are(airflow: AirflowInstance, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "start" / "your_net.md").read_text()
    (written,) = re.findall(r"dags trigger deepspark_train --conf '(.*)'", page)
    conf = json.loads(written)
    example = SmallExample(tmp_path).write()
    conf |= {"solver": example.conf()["solver"], "source": str(write_class_folders(tmp_path / "pictures"))}
    # What else is there only makes the run short.
    done = airflow.trigger("deepspark_train", conf | {"n_workers": 1, "overrides": "max_iter: 20", "formats": FORMATS})
    done.wait()
    manifest = read_manifest(dataset_of(done) / "train")
    assert manifest.sample_shape == (3, 40, 48)
    assert (manifest.options["max_pixel"], manifest.class_names) == (255, ("cat", "dog"))
    assert "become" not in done.log_text("check") + done.log_text("ingest")


def write_class_folders(folder: Path) -> Path:
    """Write PNGs of 40x48 pixels, 15 of each of two classes, and return their folder."""
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for i in range(15):
            cv2.imwrite(str(folder / name / f"{i}.png"), image_bgr(2 * i + label, (40, 48)))
    return folder
