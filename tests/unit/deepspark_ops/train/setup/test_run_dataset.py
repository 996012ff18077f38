"""A resumed run keeps the version of its dataset."""

import shutil

import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.inspect.whole import verify_dataset
from deepspark_ops.ingest.versions.kept_versions import version_digest
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.shards.changed_shards import shard_stamps
from deepspark_ops.train.setup.run_dataset import (
    note_dataset,
    noted_digest,
    noted_stamps,
    stamps_of,
    with_its_version,
)
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images


@pytest.fixture
def grown(tmp_path):
    """Return a function that adds ten records to a dataset, and the dataset's first version."""
    source = write_images(tmp_path / "raw", 60)
    lines = source.read_text().splitlines()
    config = IngestConfig(source=source, output=tmp_path / "set")

    def to(count, **options):
        source.write_text("\n".join(lines[:count]) + "\n")
        ingest(config.model_copy(update=options), tmp_path / "work", goes_on=True)
        return version_digest(tmp_path / "set")

    return to


def test_a_run_keeps_its_version_and_a_new_one_takes_the_newest(tmp_path, grown):
    first = grown(30)
    run, other = RunPaths(tmp_path / "run"), RunPaths(tmp_path / "other")
    config = TrainConfig(solver="s", run_dir=run.root, dataset=tmp_path / "set")
    assert with_its_version(config, run) == config
    note_dataset(config, run)
    assert noted_digest(run) == first
    assert with_its_version(config, run) == config
    grown(40)
    mine = with_its_version(config, run)
    assert mine.dataset == tmp_path / "set" / "versions" / first.removeprefix("sha256:")[:12]
    assert version_digest(mine.dataset) == first
    assert with_its_version(config, other) == config
    # The version that the run goes on with is noted again, and does not change.
    note_dataset(mine, run)
    grown(50)
    assert with_its_version(config, run) == with_its_version(mine, run) == mine
    assert (
        with_its_version(config.model_copy(update={"dataset": tmp_path / "elsewhere"}), run).dataset.name == "elsewhere"
    )


def test_a_version_with_other_options_is_kept_too_and_not_missed_when_it_is_gone(tmp_path, grown):
    first = grown(30)
    run = RunPaths(tmp_path / "run")
    config = TrainConfig(solver="s", run_dir=run.root, dataset=tmp_path / "set")
    note_dataset(config, run)
    grown(40, full=True, gray=True)
    kept_version = with_its_version(config, run).dataset
    assert version_digest(kept_version) == first
    verify_dataset(kept_version, lambda _: None)
    shutil.rmtree(kept_version)
    assert with_its_version(config, run) == config
    run.dataset.write_text("[")
    assert with_its_version(config, run) == config
    note_dataset(config.model_copy(update={"dataset": None}), run)
    assert not run.dataset.exists()


def test_a_worker_that_starts_again_does_not_read_another_dataset(tmp_path, grown):
    grown(30)
    run = RunPaths(tmp_path / "run")
    config = TrainConfig(solver="s", run_dir=run.root, dataset=tmp_path / "set")
    assert noted_stamps(config, run) == {}
    note_dataset(config, run, stamps_of(config.dataset))
    stamps = noted_stamps(config, run)
    assert set(stamps) == {"train", "test"}
    grown(40)  # the version before is kept
    kept_config = with_its_version(config, run)
    assert noted_stamps(kept_config, run) == stamps
    assert shard_stamps(kept_config.dataset / "train") == stamps["train"]
    with pytest.raises(DataError, match=r"set: was replaced while the run reads it, and its version sha256:"):
        noted_stamps(config, run)
