"""Inputs and outputs of each stage: an ingested dataset, and the files of stages."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.operators.lineage.stage_lineage import StageFacts, after_stage, before_stage, named_dataset
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.shards.manifest import split_digests
from tests.reference.evaluations import evaluation, write_evaluation
from tests.reference.example_sources import EXAMPLE_SOURCES
from tests.reference.ingest_in_process import ingest


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pets")
    (folder / "raw").mkdir()
    source = EXAMPLE_SOURCES["class_folders"](folder / "raw")
    ingest(IngestConfig(source=source, output=folder / "pets", test_fraction=0.5), folder / "work")
    return folder / "pets"


def facts(**output: object) -> StageFacts:
    return StageFacts({"source": "pets"}, {name: str(value) for name, value in output.items()}, Path("/data"))


def run_with_snapshots(folder: Path) -> Path:
    snapshots = RunPaths(folder).snapshots
    snapshots.mkdir(parents=True)
    for iteration in (5, 10):
        (snapshots / f"s_iter_{iteration}.caffemodel").write_text(f"weights {iteration}")
        (snapshots / f"s_iter_{iteration}.state.h5").write_text("state")
    return folder


def test_an_ingestion_reads_its_sources_and_writes_splits_with_columns_counts_and_digests(pets: Path) -> None:
    values = {"source": "pets", "test_source": "s3://bucket/test.txt", "validation_source": None}
    lineage = after_stage("ingest", StageFacts(values, {"dataset": str(pets)}, Path("/data")))
    assert [(dataset.namespace, dataset.name) for dataset in lineage.inputs] == [
        ("file", "/data/pets"),
        ("s3://bucket", "test.txt"),
    ]
    assert [dataset.name for dataset in lineage.outputs] == [str(pets / "train"), str(pets / "test")]
    assert sum(dataset.n_rows or 0 for dataset in lineage.outputs) == 6
    assert [dataset.digest for dataset in lineage.outputs] == list(split_digests(pets).values())
    assert lineage.outputs[0].columns == (("data", "uint8[3, 8, 8]"), ("label", "int"))
    assert before_stage("ingest", StageFacts(values, {}, Path("/data"))).outputs == ()


def test_a_dataset_in_a_store_is_named_by_the_store(pets: Path, store: Path) -> None:
    shutil.copytree(pets, store / "bucket" / "sets" / "pets")
    lineage = after_stage("ingest", facts(dataset="s3://bucket/sets/pets"))
    assert [(split.namespace, split.name) for split in lineage.outputs] == [
        ("s3://bucket", "sets/pets/train"),
        ("s3://bucket", "sets/pets/test"),
    ]
    assert [split.digest for split in lineage.outputs] == list(split_digests(pets).values())


def test_a_training_reads_the_dataset_and_writes_its_last_snapshot(pets: Path, tmp_path: Path) -> None:
    run_dir = run_with_snapshots(tmp_path / "run")
    lineage = after_stage("train", facts(run_dir=run_dir, dataset=pets))
    assert [dataset.name for dataset in lineage.inputs] == [str(pets / "train"), str(pets / "test")]
    (model,) = lineage.outputs
    assert model.name == str(RunPaths(run_dir).snapshots / "s_iter_10.caffemodel")
    assert model.digest == f"sha256:{hashlib.sha256(b'weights 10').hexdigest()}"
    assert after_stage("train", facts(run_dir=tmp_path / "none")).outputs == ()


def test_an_evaluation_gives_the_split_that_it_scored_the_models_figures(pets: Path, tmp_path: Path) -> None:
    run_dir = run_with_snapshots(tmp_path / "run")
    write_evaluation(run_dir / "evaluation", evaluation([0, 1, 1, 1], [0, 1, 0, 1]))
    metrics = run_dir / "evaluation" / "metrics.json"
    fields = json.loads(metrics.read_text())
    fields["scored"]["dataset"] = str(pets)  # as a stage writes metrics; the digest is of samples, not of a manifest
    metrics.write_text(json.dumps(fields))
    lineage = after_stage("evaluate", facts(run_dir=run_dir, dataset=pets, metrics=metrics, digest="sha256:f"))
    train, test, model = lineage.inputs
    assert train.figures == {}
    assert test.figures["top1"] == 0.75
    assert model.name.endswith("s_iter_10.caffemodel")
    assert [(dataset.name, dataset.digest) for dataset in lineage.outputs] == [(str(metrics), "sha256:f")]


def test_export_and_promotion_lead_from_snapshot_to_bundle_to_version(tmp_path: Path) -> None:
    run_dir = run_with_snapshots(tmp_path / "run")
    export = after_stage("export", facts(run_dir=run_dir, bundle=run_dir / "bundle", digest="sha256:b"))
    promote = after_stage("promote", facts(run_dir=run_dir, version="/m/digits/versions/v2", digest="sha256:b"))
    assert [dataset.name for dataset in export.inputs] == [str(RunPaths(run_dir).snapshots / "s_iter_10.caffemodel")]
    assert [(dataset.name, dataset.digest) for dataset in export.outputs] == [(str(run_dir / "bundle"), "sha256:b")]
    assert [dataset.name for dataset in promote.inputs] == [export.outputs[0].name]
    assert [dataset.name for dataset in promote.outputs] == ["/m/digits/versions/v2"]


def test_a_stage_without_lineage_has_none(tmp_path: Path) -> None:
    assert after_stage("clean", facts(run_dir=tmp_path)).inputs == ()


@pytest.mark.parametrize(
    ("address", "namespace", "name"),
    [
        ("list.txt", "file", "/data/list.txt"),
        ("/x/list.txt", "file", "/x/list.txt"),
        ("s3://bucket/pets/train.txt", "s3://bucket", "pets/train.txt"),
        ("hdfs://host:8020/pets", "hdfs://host:8020", "pets"),
        ("table:pets.photos", "spark", "pets.photos"),
    ],
)
def test_addresses_have_the_namespaces_of_openlineage(address: str, namespace: str, name: str) -> None:
    dataset = named_dataset(address, Path("/data"))
    assert (dataset.namespace, dataset.name) == (namespace, name)
