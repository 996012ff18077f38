"""The whole DAG deepspark_train, as Airflow runs it."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from deepspark_ops.shards.manifest import read_manifest
from tests.e2e.airflow_instance import AirflowInstance
from tests.e2e.finished_runs import dataset_of, run_on_own_data
from tests.e2e.small_example import DIGITS, FORMATS, IMAGES, IMAGES_HEADER, LABELS, LABELS_HEADER, SmallExample
from tests.paths import ROOT

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

PICTURE_SIZE = (8, 10)
NO_GPU = "training on the CPU: this host has no nvidia-smi on PATH"


def test_the_conf_of_the_docs_makes_a_checked_bundle_of_a_folder_of_pictures(
    airflow: AirflowInstance, example: SmallExample
) -> None:
    page = (ROOT / "docs" / "start" / "your_net.md").read_text()
    (written,) = re.findall(r"dags trigger deepspark_train --conf '(.*)'", page)
    pictures = write_digits(example.folder / "pictures")
    changes = {"solver": example.conf()["solver"], "source": str(pictures), "n_workers": 2, "formats": FORMATS}
    dag_run = airflow.trigger("deepspark_train", json.loads(written) | changes)
    dag_run.wait()
    manifest = read_manifest(dataset_of(dag_run) / "train")
    assert manifest.sample_shape == (3, *PICTURE_SIZE)
    assert (manifest.options["max_pixel"], manifest.class_names) == (255, tuple("0123456789"))
    assert "become" not in dag_run.log_text("check") + dag_run.log_text("ingest")
    run = dag_run.folder
    certificate = json.loads((run / "parity.json").read_text())
    assert not certificate["failed"]
    assert {row["layer_type"]: row["n_passed"] > 0 for row in certificate["parity"]}["SoftmaxWithLoss"]
    metrics = json.loads((run / "evaluation" / "metrics.json").read_text())
    assert metrics["top1"] > 0.8
    assert "Trained on" in (run / "evaluation" / "report.html").read_text()
    assert {path.name for path in (run / "bundle").iterdir()} >= {"saved_model", "weights.caffemodel", "manifest.json"}
    # Lines of the Spark workers reach the log through the driver; a late worker may find the work done.
    reports = [entry for entry in dag_run.log("train") if " loss clock=" in str(entry.get("event"))]
    assert re.search(r"worker [01] loss clock=\d+/200 loss=\S+ lr=\S+ images/s=", str(reports[0]["event"]))
    assert {entry["level"] for entry in reports} == {"info"}
    # The run asked for a GPU, Caffe's default, and noted a missing GPU once.
    text = "\n".join(dag_run.log_text(task) for task in dag_run.task_states())
    assert text.count(NO_GPU) == (shutil.which("nvidia-smi") is None)


def test_without_a_source_training_reads_what_the_net_itself_names(airflow: AirflowInstance) -> None:
    dag_run = run_on_own_data(airflow)
    assert "training reads the sources that the net names" in dag_run.log_text("ingest")
    log = dag_run.log_text("train")
    assert re.search(r"worker 0: CPU, \d+ threads?\b", log)
    assert NO_GPU not in log + dag_run.log_text("check")


def test_a_mistake_ends_the_run_in_its_first_task_by_name(airflow: AirflowInstance, example: SmallExample) -> None:
    conf = example.conf(overrides="max_itr: 3")  # others: tests/unit/deepspark_ops/operators
    dag_run = airflow.trigger("deepspark_train", conf)
    dag_run.wait("failed")
    assert dag_run.task_states() == {
        "check": "failed",
        **dict.fromkeys(("ingest", "train", "evaluate", "export"), "upstream_failed"),
    }
    # Last in the task's log, once, and no traceback with or after it: Airflow adds the exit code of the task.
    log = dag_run.log("check")
    (at,) = (n for n, entry in enumerate(log) if 'unknown field "max_itr" in the solver' in str(entry.get("event")))
    assert 'did you mean "max_iter"?' in log[at]["event"]
    messages = [str(entry.get("event")) for entry in log[at + 1 :]]
    assert messages[:2] == ["Task exited", "::group::Post Execute"]  # folded there: the called notifiers
    assert not [entry for entry in log if "error_detail" in entry or "Traceback" in str(entry)]


def write_digits(folder: Path) -> Path:
    """Write the digits as PNGs, wider than high, in a folder for each class; return the folder of all."""
    images, labels = (gzip.decompress((DIGITS / name).read_bytes()) for name in (IMAGES, LABELS))
    pixels = np.frombuffer(images, np.uint8, offset=IMAGES_HEADER).reshape(-1, 8, 8) * 255.0 / 16
    for number, (image, label) in enumerate(zip(pixels, labels[LABELS_HEADER:], strict=True)):
        class_folder = folder / str(label)
        class_folder.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(class_folder / f"{number:04d}.png"), np.pad(image, ((0, 0), (1, 1))).astype(np.uint8))
    return folder
