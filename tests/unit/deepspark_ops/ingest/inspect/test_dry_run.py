"""A dry run says what an ingestion then makes, and writes nothing."""

import json

import pytest
from typer.testing import CliRunner

from deepspark_ops.command.cli import app
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.inspect import dry_run as dry_run_module
from deepspark_ops.ingest.inspect.dry_run import dry_run
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images


@pytest.fixture
def config(tmp_path):
    source = write_images(tmp_path / "raw", 90)
    return IngestConfig(source=source, output=tmp_path / "out", samples_per_shard=20, validation_fraction=0.1)


def test_counts_are_those_of_the_ingestion_and_the_size_is_near(tmp_path, config):
    config = config.model_copy(update={"balance": "oversample", "limit": 80})
    found = dry_run(config)
    assert not config.output.exists()
    made = ingest(config, tmp_path / "work")
    assert found["splits"] == {
        split: {"n_samples": manifest.n_samples, "label_histogram": list(manifest.label_histogram)}
        for split, manifest in made.items()
    }
    assert found["chosen"] == {split: manifest.chosen for split, manifest in made.items() if manifest.chosen}
    assert found["sample_shape"] == list(made["train"].sample_shape)
    n_bytes = sum(manifest.n_bytes for manifest in made.values())
    assert found["estimate"]["n_bytes"] == n_bytes  # every record was sampled
    assert found["estimate"]["seconds"] > 0
    assert found["sampled"]["sizes"] == {"height": [8, 8, 8], "width": [8, 8, 8]}


def test_of_many_records_few_are_read(config, monkeypatch):
    monkeypatch.setattr(dry_run_module, "SAMPLED", 12)
    found = dry_run(config)
    assert 12 <= found["sampled"]["n_records"] <= 18  # at least one of each shard
    assert sum(one["n_samples"] for one in found["splits"].values()) == 90


def test_bad_records_and_warnings_are_told(config):
    for number in range(30):
        (config.source.parent / "img" / f"{number}.png").write_bytes(b"x")
    config.source.write_text(config.source.read_text() + "bad\nimg/50.png 7\n")
    found = dry_run(config.model_copy(update={"n_classes": 4}))
    assert found["rejected"] == {
        "n_records": 2,
        "first": ['bad: line 91 is not "path label"', "img/50.png: label 7 is outside [0, 4)"],
    }
    assert found["sampled"]["n_rejected"] == 30
    assert found["would_fail"]
    assert found["warnings"] == {"path_with_two_labels": 1, "class_without_sample": 1}


def test_the_command_prints_tables_or_json(config, tmp_path):
    arguments = ["ingest", str(config.source), "--output", str(config.output), "--dry-run"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    assert "samples of 3x8x8; nothing was written" in done.stdout
    assert "about 48.0 KiB" in done.stdout
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(done.stdout)["format"] == "image_list"
    done = CliRunner().invoke(app, [*arguments[:-1], "--json"])
    assert (done.exit_code, "give both" in done.stderr.replace("\n", " ")) == (2, True)
    assert not config.output.exists()


def test_a_table_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,label\n1,2,0\n3,4,1\n")
    config = IngestConfig(source=tmp_path / "t.csv", output=tmp_path / "o", source_format="csv")
    with pytest.raises(ConfigError, match="a table is read by Spark; try it with limit=1000"):
        dry_run(config)
