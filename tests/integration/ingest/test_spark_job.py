"""The ingest stage as the process that the pipeline starts: plain python, spark-submit, and users' mistakes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest import spark_job
from deepspark_ops.processes.job_log import USER_MISTAKE
from deepspark_ops.processes.spark_submit import job_variables, spark_conf
from deepspark_ops.processes.stage_process import stage_main
from deepspark_ops.shards.manifest import sha256_of_file
from deepspark_ops.shards.verification import verify
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_idx, write_images, write_tar
from tests.reference.table_files import a_table, ingest_parts, write_table

SUBMIT = Path(sys.executable).with_name("spark-submit")


def write_config(tmp_path, **options) -> Path:
    path = tmp_path / "config.json"
    path.write_text(IngestConfig(**{"output": tmp_path / "out", "master": "local[2]", **options}).model_dump_json())
    return path


def job_output(command) -> tuple[int, list[str]]:
    environment = {**os.environ, **job_variables(os.environ), "OMP_NUM_THREADS": "1"}
    completed = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    return completed.returncode, (completed.stdout + completed.stderr).splitlines()


def tree(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): sha256_of_file(p) for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.spark
def test_digits_are_ingested_by_plain_python_and_a_rerun_writes_nothing(tmp_path):
    images = np.random.default_rng(0).integers(0, 17, (200, 8, 8))
    source = write_idx(tmp_path / "digits-images-idx3-ubyte.gz", images)
    write_idx(tmp_path / "digits-labels-idx1-ubyte.gz", np.arange(200) % 10)
    config = write_config(
        tmp_path, source=source, max_pixel=16, samples_per_shard=40, resize_height=12, resize_width=12
    )
    command = [sys.executable, "-m", "deepspark_ops.ingest.spark_job", str(config)]
    exit_code, lines = job_output(command)
    assert exit_code == 0, lines
    progress = [line for line in lines if "written" in line]
    assert [line for line in progress if "ingest test: shard 2/2 written, 44 samples" in line]
    assert len(progress) == 6
    assert any("INFO: ingest train: shard 4/4 written, 156 samples, " in line for line in progress)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "contact_sheet.zip",
        "dataset.json",
        "report.html",
        "test",
        "train",
    ]
    manifest = verify(tmp_path / "out" / "train")
    counts = np.array(manifest.label_histogram) + verify(tmp_path / "out" / "test").label_histogram
    assert (manifest.sample_shape, counts.tolist()) == ((1, 12, 12), [20] * 10)

    # The same tasks in this process give the same bytes: nothing depends on who runs them, or when.
    parsed = IngestConfig.model_validate_json(config.read_text())
    old_tree = tree(tmp_path / "out")
    ingest(parsed, tmp_path / "work")
    assert tree(tmp_path / "out") == old_tree

    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    exit_code, lines = job_output(command)
    assert (exit_code, [line for line in lines if "is up to date" in line]) == (0, lines)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == stamps


@pytest.mark.spark
def test_bad_record_in_a_task_ends_spark_submit_with_one_message(tmp_path):
    folder = write_images(tmp_path / "raw", 30, suffix=".jpg").parent
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    files["img/7.jpg"] = files["img/7.jpg"][:50]
    archive = write_tar(tmp_path / "a.tar.gz", files)
    options = {"source": f"{archive}::list.txt", "test_fraction": 0.2, "samples_per_shard": 9, "encoded": True}
    script = str(Path(spark_job.__file__))
    conf = [f"--conf={key}={value}" for key, value in spark_conf(tmp_path / "scratch").items()]
    submit = [str(SUBMIT), "--master", "local[2]", *conf, script]

    exit_code, lines = job_output([*submit, str(write_config(tmp_path, **options))])
    errors = [line for line in lines if "ERROR" in line]
    assert exit_code == USER_MISTAKE, lines
    assert errors == [
        "ERROR: 1 of 30 records cannot be used, max_rejected_fraction=0.01 allows 0; first: img/7.jpg: 50 bytes that"
        f" are no image OpenCV can read (JPEG, PNG, BMP, ...); all are in {tmp_path}/out/rejected.jsonl"
    ]
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == ["rejected.jsonl"]


@pytest.mark.spark
@pytest.mark.long
def test_a_dry_run_of_a_table_that_spark_reads_has_the_counts_of_plain_arrow(tmp_path):
    table = a_table(80)
    source = write_table(tmp_path / "t.csv", table)
    output = tmp_path / "out"
    options = ["--label-column", "label", "--id-column", "id", "--balance", "undersample", "--dry-run", "--json"]
    command = [sys.executable, "-m", "deepspark_ops.command.cli", "ingest", str(source), "--output", str(output)]
    completed = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, check=False)
    assert completed.returncode == 0, completed.stderr
    report = json.loads(completed.stdout)
    assert report["format"] == "csv"
    assert list(tmp_path.iterdir()) == [source]
    config = IngestConfig(source=source, output=output, label_column="label", id_column="id", balance="undersample")
    manifests = ingest_parts(config, [table], tmp_path / "work")
    assert report["splits"] == {
        split: {"n_samples": manifest.n_samples, "label_histogram": list(manifest.label_histogram)}
        for split, manifest in manifests.items()
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON: Expecting property name"),
        ("[]", "expected a JSON object, found list"),
        ('{"source": "gone.txt", "output": "out"}', "source=gone.txt: no such file or folder"),
        ('{"source": "list.txt", "output": "out"}', "list.txt: the image list is empty: no line"),
        ('{"source": "x", "output": "out", "sede": 1}', "sede=1: Extra inputs are not permitted; known: source,"),
        (
            '{"source": "one.txt", "output": "out", "test_fraction": 0, "master": "yarn", "listen_address": "::1"}',
            "listen_address=::1: a loopback address, which workers of master=yarn cannot reach",
        ),
        ('{"source": "one.txt", "output": "list.txt/out", "test_fraction": 0}', "output=list.txt/out: Not a directory"),
    ],
)
def test_mistakes_end_with_one_message_and_code_2_before_spark_starts(tmp_path, monkeypatch, capsys, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text("")
    (tmp_path / "one.txt").write_text("a.png 0\n")
    (tmp_path / "config.json").write_text(content)
    assert stage_main(spark_job.main, ["config.json"]) == USER_MISTAKE
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ERROR")]
    assert len(errors) == 1
    assert message in errors[0]
    assert not (tmp_path / "out").exists()
