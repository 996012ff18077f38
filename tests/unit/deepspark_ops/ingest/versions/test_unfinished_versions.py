"""An ingestion removes a killed process's files in ``versions/`` after a day."""

import os
import time
from pathlib import Path

import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.inspect.whole import verify_dataset
from deepspark_ops.ingest.versions.kept_versions import ABANDONED_S, kept_versions
from deepspark_ops.stores.store_path import data_path
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images


def age(folder: Path, seconds: float) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (time.time() - seconds,) * 2)


@pytest.mark.parametrize("is_in_store", [True, False])
def test_a_version_whose_removal_was_killed_goes_when_nobody_can_be_at_work(store, tmp_path, is_in_store):
    source = write_images(tmp_path / "raw", 30)
    lines = source.read_text().splitlines()
    output, folder = data_path("s3://b/set") if is_in_store else tmp_path / "set", tmp_path / "set"
    if is_in_store:
        folder = store / "b" / "set"

    def ingest_first(count: int) -> None:
        source.write_text("\n".join(lines[:count]) + "\n")
        ingest(IngestConfig(source=source, output=output), tmp_path / f"work{count}", goes_on=True)

    ingest_first(10)
    ingest_first(15)
    (version,) = kept_versions(output)
    (version / "dataset.json").unlink()
    damaged = folder / "versions" / version.name
    (folder / "versions" / ".half.tmp" / "train").mkdir(parents=True)
    (folder / "versions" / ".half.tmp" / "train" / "manifest.json").write_text("{")
    (folder / "versions" / "notes").mkdir()
    (folder / "versions" / "notes" / "mine.txt").write_text("no version")
    age(folder / "versions" / "notes", 2 * ABANDONED_S)
    ingest_first(20)
    assert damaged.is_dir()
    for name in (version.name, ".half.tmp"):
        age(folder / "versions" / name, ABANDONED_S + 60)
    ingest_first(25)
    versions = kept_versions(output)
    assert {path.name for path in (folder / "versions").iterdir() if any(path.rglob("*.*"))} == {
        "notes",
        *(path.name for path in versions),
    }
    assert len(versions) == 2
    for path in (output, *versions):
        verify_dataset(path, lambda _: None)
