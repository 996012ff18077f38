"""A dry run says what an ingestion then makes, and writes nothing."""

import json
from collections import Counter

import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest import dry_run as dry_run_module
from deepspark_ops.ingest.dry_run import dry_run
from deepspark_ops.ingest.spark_job import run_ingest
from tests.reference.command_line import invoke
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images
from tests.reference.table_files import a_table, write_table


@pytest.fixture
def config(tmp_path):
    source = write_images(tmp_path / "raw", 90)
    return IngestConfig(source=source, output=tmp_path / "out", samples_per_shard=20, validation_fraction=0.1)


def test_counts_are_those_of_the_ingestion_and_the_size_is_near(tmp_path, config):
    config = config.model_copy(update={"balance": "oversample", "limit": 80})
    forecast = dry_run(config)
    assert not config.output.exists()
    manifests = ingest(config, tmp_path / "work")
    assert forecast["splits"] == {
        split: {"n_samples": manifest.n_samples, "label_histogram": list(manifest.label_histogram)}
        for split, manifest in manifests.items()
    }
    assert forecast["chosen"] == {split: manifest.chosen for split, manifest in manifests.items() if manifest.chosen}
    assert forecast["sample_shape"] == list(manifests["train"].sample_shape)
    n_bytes = sum(manifest.n_bytes for manifest in manifests.values())
    assert forecast["estimate"]["n_bytes"] == n_bytes  # every record was sampled
    assert forecast["estimate"]["seconds"] > 0
    assert forecast["sampled"]["sizes"] == {"height": [8, 8, 8], "width": [8, 8, 8]}


def test_of_many_records_few_are_read(config, monkeypatch):
    monkeypatch.setattr(dry_run_module, "SAMPLED_IMAGES", 12)
    forecast = dry_run(config)
    assert 12 <= forecast["sampled"]["n_records"] <= 18  # at least one of each shard
    assert sum(split["n_samples"] for split in forecast["splits"].values()) == 90


def test_bad_records_and_warnings_are_told(config):
    for number in range(30):
        (config.source.parent / "img" / f"{number}.png").write_bytes(b"x")
    config.source.write_text(config.source.read_text() + "bad\nimg/50.png 7\n")
    forecast = dry_run(config.model_copy(update={"n_classes": 4}))
    assert forecast["rejected"] == {
        "n_records": 2,
        "first": ['bad: line 91 is not "path label"', "img/50.png: label 7 is outside [0, 4)"],
    }
    assert forecast["sampled"]["n_rejected"] == 30
    assert forecast["would_fail"]
    assert forecast["warnings"] == {"path_with_two_labels": 1, "class_without_sample": 1}


def test_the_command_prints_tables_or_json(config, tmp_path):
    arguments = ["ingest", str(config.source), "--output", str(config.output), "--dry-run"]
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "samples of 3x8x8; nothing was written" in result.stdout
    assert "about 48.0 KiB" in result.stdout
    result = invoke(*arguments, "--json")
    assert json.loads(result.stdout)["format"] == "image_list"
    result = invoke(*arguments[:-1], "--json")
    assert (result.exit_code, "give both" in result.stderr.replace("\n", " ")) == (2, True)
    assert not config.output.exists()


@pytest.mark.parametrize("ending", ["parquet", "avro"])
@pytest.mark.parametrize(
    "options",
    [
        {"label_column": "label", "validation_fraction": 0.2},
        {"label_column": "label", "group_column": "customer", "limit": 80, "balance": "oversample"},
        {"label_column": "price", "deduplicate": True},
    ],
)
def test_a_table_has_the_counts_of_its_ingestion(tmp_path, ending, options):
    source = write_table(tmp_path / f"t.{ending}", a_table(100))
    config = IngestConfig(source=source, output=tmp_path / "out", samples_per_shard=30, master="local[2]", **options)
    report = dry_run(config)
    assert not config.output.exists()
    manifests = run_ingest(config)
    assert report["splits"] == {
        split: {"n_samples": manifest.n_samples, "label_histogram": list(manifest.label_histogram)}
        for split, manifest in manifests.items()
    }
    assert report["chosen"] == {split: manifest.chosen for split, manifest in manifests.items() if manifest.chosen}
    warnings = Counter[str]()
    for manifest in manifests.values():
        warnings.update(manifest.warnings)
    assert report["warnings"] == dict(warnings)
    assert report["sample_shape"] == list(manifests["train"].sample_shape)
    assert report["class_names"] == list(manifests["train"].class_names)
    assert report["sampled"]["sizes"] is None
    assert report["estimate"]["n_bytes"] == sum(manifest.n_bytes for manifest in manifests.values())
    assert not report["would_fail"]


def test_bad_rows_of_a_table_are_told(tmp_path):
    table = a_table(50).set_column(2, "f0", [np.where(np.arange(50) % 5 == 0, np.inf, 1.0)])
    source = write_table(tmp_path / "t.parquet", table)
    report = dry_run(IngestConfig(source=source, output=tmp_path / "out", label_column="label"))
    assert report["rejected"]["n_records"] == 10
    assert report["rejected"]["first"][0] == '1000: column "f0": no finite number'
    assert report["would_fail"]
    assert list(tmp_path.iterdir()) == [source]


def test_of_many_rows_few_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(dry_run_module, "SAMPLED_ROWS", 40)
    source = write_table(tmp_path / "t.parquet", a_table(400))
    report = dry_run(IngestConfig(source=source, output=tmp_path / "out", label_column="label", samples_per_shard=100))
    assert 40 <= report["sampled"]["n_records"] <= 48
    assert sum(split["n_samples"] for split in report["splits"].values()) == 400


@pytest.mark.parametrize("label", ["label", "price"])
def test_the_command_prints_the_report_of_a_table(tmp_path, label):
    source = write_table(tmp_path / "t.parquet", a_table(60))
    arguments = ["ingest", str(source), "--output", str(tmp_path / "out"), "--label-column", label, "--dry-run"]
    completed = invoke(*arguments)
    assert completed.exit_code == 0, completed.stderr
    assert "nothing was written" in completed.stdout
    assert ("eel" if label == "label" else "train: 4") in completed.stdout
    assert not (tmp_path / "out").exists()
