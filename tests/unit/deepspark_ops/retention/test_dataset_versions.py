"""Earlier versions of a dataset go when nothing needs the versions, together with shards of no other version."""

import fcntl
import json
import os
import shutil
import socket
import time

import pytest

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.versions.kept_versions import kept_versions, version_digest
from deepspark_ops.registry.changes import Author, promote
from deepspark_ops.registry.gate import decide
from deepspark_ops.retention.dataset_versions import prune_versions
from deepspark_ops.run_paths import DatasetPaths, RunPaths
from deepspark_ops.shards.verification import verify
from deepspark_ops.train.setup.dataset_users import UNSEEN_DAYS, note_user
from deepspark_ops.train.setup.run_dataset import note_dataset
from tests.reference.bundles import make_bundle
from tests.reference.evaluations import evaluation
from tests.reference.table_files import a_table, without_missing_values
from tests.unit.deepspark_ops.ingest.versions.test_table_versions import brought_up


@pytest.fixture
def dataset(tmp_path):
    """Four versions; the first has shards of rows that are gone since."""
    table = without_missing_values(a_table(160))
    folder = tmp_path / "home" / "datasets" / "rows"
    brought_up(tmp_path, table.slice(0, 90), output=folder)
    for start, stop in ((40, 100), (40, 120), (40, 160)):
        brought_up(tmp_path, table.slice(start, stop - start), output=folder)
    assert len(kept_versions(folder)) == 3
    return folder


def prune(dataset, **options):
    return prune_versions(dataset, **{"keep": 0, "remove": True, "home": None, "on_step": lambda _: None, **options})


def files(dataset) -> set[str]:
    return {path.name for path in dataset.glob("*/*.h5")}


def test_only_a_look_without_remove(dataset):
    old_inodes = {path: path.stat().st_ino for path in dataset.rglob("*")}
    report = prune(dataset, keep=1, remove=False)
    assert [(version.version, version.goes, version.removed) for version in report.versions] == [
        (1, True, False),
        (2, True, False),
        (3, False, False),
    ]
    assert report.versions[0].bytes > 0
    assert report.lines()[-1].startswith("2 of 3 earlier versions, ")
    assert {path: path.stat().st_ino for path in dataset.rglob("*")} == old_inodes


def test_removed_versions_take_their_shards_and_other_versions_stay_whole(dataset):
    was = files(dataset)
    listed = prune(dataset, keep=1, remove=False)
    sizes = {path.name: path.stat().st_size for path in dataset.glob("*/*.h5")}
    report = prune(dataset, keep=1)
    assert [version.removed for version in report.versions] == [True, True, False]
    assert sum(version.bytes for version in listed.versions) == sum(sizes[name] for name in was - files(dataset)) > 0
    (kept_version,) = kept_versions(dataset)
    named = {
        shard.file
        for at in (kept_version, dataset)
        for split in ("train", "test")
        for shard in verify(at / split).shards
    }
    assert files(dataset) == named
    assert prune(dataset).versions[0].removed
    assert files(dataset) == {shard.file for split in ("train", "test") for shard in verify(dataset / split).shards}
    assert prune(dataset).lines() == ["nothing to remove"]


def test_what_a_run_began_with_stays(dataset):
    first, second, _ = kept_versions(dataset)
    home = dataset.parent.parent
    run = RunPaths(home / "runs" / "a")
    run.root.mkdir(parents=True)
    run.config.write_text(json.dumps({"dataset": str(second)}))
    noted = {"format_version": 1, "dataset": str(dataset), "train_digest": version_digest(first)}
    run.dataset.write_text(json.dumps(noted))
    report = prune(dataset)
    assert [(version.goes, version.reason) for version in report.versions] == [
        (False, "run a began with it"),
        (False, "run a names it"),
        (True, "nothing refers to it"),
    ]
    assert kept_versions(dataset) == [first, second]
    assert all(verify(path / "train") for path in (first, second))


def test_what_a_run_elsewhere_began_with_stays_until_the_run_is_gone(dataset, tmp_path):
    first, second, _ = kept_versions(dataset)
    run = RunPaths(tmp_path / "elsewhere" / "run")
    run.root.mkdir(parents=True)
    note_dataset(TrainConfig(solver="s", run_dir=run.root, dataset=second), run)
    note_user(dataset, tmp_path / "gone", version_digest(first))
    report = prune(dataset)
    assert [version.removed for version in report.versions] == [True, False, True]
    assert report.versions[1].reason == f"run {run.root} of host {socket.gethostname()} began with it"
    assert verify(second / "train")
    shutil.rmtree(run.root)
    assert [version.removed for version in prune(dataset).versions] == [True]


def test_what_a_run_of_another_host_began_with_stays_for_some_days(dataset, tmp_path, monkeypatch):
    first, *_ = kept_versions(dataset)
    with monkeypatch.context() as other_host:
        other_host.setattr(socket, "gethostname", lambda: "worker-7")
        note_user(dataset, tmp_path / "not_here", version_digest(first))
    assert [version.removed for version in prune(dataset).versions] == [False, True, True]
    (note,) = DatasetPaths(dataset).users.iterdir()
    long_ago = time.time() - (UNSEEN_DAYS + 1) * 86_400
    os.utime(note, (long_ago, long_ago))
    assert [version.removed for version in prune(dataset).versions] == [True]


def test_what_a_model_elsewhere_came_from_stays(dataset, tmp_path):
    first, *_ = kept_versions(dataset)
    config = PromoteConfig(models=tmp_path / "production", model="digits")
    bundle = make_bundle(tmp_path / "bundle", datasets={"train": version_digest(first)})
    decision = decide(evaluation([0], [0]), None, config, against=None).model_copy(update={"promotes": True})
    promote(bundle, decision, config, Author("anna"), run_dir=None)
    report = prune(dataset, models=[tmp_path / "production"])
    assert [(version.removed, version.reason) for version in report.versions[:2]] == [
        (False, "v1 of model digits came from it"),
        (True, "nothing refers to it"),
    ]
    with pytest.raises(ConfigError, match=r"models=.*: no such folder"):
        prune(dataset, models=[tmp_path / "none"])


def test_a_damaged_note_of_a_run_removes_nothing(dataset):
    DatasetPaths(dataset).users.mkdir()
    (DatasetPaths(dataset).users / "a.json").write_text("[")
    with pytest.raises(DataError, match=r"a.json: no note of a run"):
        prune(dataset)
    assert len(kept_versions(dataset)) == 3


def test_a_run_that_begins_while_versions_are_removed_keeps_its_version(dataset):
    first, second, _ = kept_versions(dataset)
    run = RunPaths(dataset.parent.parent / "runs" / "a")

    def begin(step):
        if str(first) in step:
            run.root.mkdir(parents=True)
            run.config.write_text(json.dumps({"dataset": str(second)}))

    report = prune_versions(dataset, keep=0, remove=True, home=None, on_step=begin)
    assert [version.removed for version in report.versions] == [True, False, True]
    assert report.versions[1].reason == "run a names it"
    assert kept_versions(dataset) == [second]
    assert verify(second / "train")


def test_an_ingestion_at_work_is_not_disturbed(dataset):
    with (dataset.parent / ".rows.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="an ingestion is at work"):
            prune(dataset)
    assert len(kept_versions(dataset)) == 3
