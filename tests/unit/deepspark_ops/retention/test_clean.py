"""Removed and remaining runs and datasets of a home folder."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.clean import CleanConfig
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.registry.changes import Author, promote
from deepspark_ops.registry.gate import decide
from deepspark_ops.retention.clean import CleanReport, clean
from deepspark_ops.run_paths import DatasetPaths, RunPaths
from deepspark_ops.shards.manifest import is_dataset, split_digests
from deepspark_ops.train.setup.dataset_users import note_user
from deepspark_ops.trials.plan import Plan, Trial, write_plan
from tests.reference.bundles import make_bundle
from tests.reference.dataset_files import put_manifest_text
from tests.reference.evaluations import evaluation

NOW = 2_000_000_000.0
DAY = 86_400.0


class Home:
    """Runs and datasets of given ages, in days."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, name: str, *, age: float, **config: Any) -> Path:
        folder = self.root / "runs" / name
        (folder / "snapshots").mkdir(parents=True)
        (folder / "snapshots" / "weights").write_bytes(b"x" * 1000)
        (folder / "config.json").write_text(json.dumps({name: str(value) for name, value in config.items()}))
        return self.aged(folder, age)

    def dataset(self, name: str, *, age: float) -> Path:
        folder = self.root / "datasets" / name
        for split in ("train", "test"):
            (folder / split).mkdir(parents=True)
            put_manifest_text(folder, split, f"{name} {split}")
        return self.aged(folder, age)

    def aged(self, folder: Path, age: float) -> Path:
        for path in [folder, *folder.rglob("*")]:
            os.utime(path, (NOW - age * DAY,) * 2, follow_symlinks=False)
        return folder

    def clean(self, **values: Any) -> CleanReport:
        options = {"home": self.root, "keep_runs": 0, "keep_datasets": 0} | values
        return clean(parse_config(CleanConfig, options), on_step=lambda _: None, now=NOW)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def goes(report: CleanReport) -> set[str]:
    return {Path(entry.path).name for entry in report.entries if entry.goes}


def reasons(report: CleanReport) -> dict[str, str]:
    return {Path(entry.path).name: entry.reason for entry in report.entries if not entry.goes}


def test_without_remove_it_lists_with_sizes_and_touches_nothing(home: Home) -> None:
    old = home.run("deepspark_train/old", age=31)
    home.run("deepspark_train/young", age=29)
    by_hand = home.run("by-hand", age=400)
    RunPaths(by_hand).index.write_text("what a page wrote a minute ago")
    data = home.dataset("digits", age=31)
    old_files = sorted(home.root.rglob("*"))
    report = home.clean()
    assert goes(report) == {"old", "by-hand", "digits"}
    assert reasons(report) == {"young": "changed in the last 30 days"}
    entry = next(entry for entry in report.entries if entry.path == str(old))
    assert (entry.kind, entry.bytes, entry.changed) == ("run", 1002, "2033-04-17T03:33:20+00:00")
    assert report.lines()[-1] == "3 of 4 folders, 2.3 KiB: can be removed by the option remove; nothing is removed yet"
    assert sorted(home.root.rglob("*")) == old_files
    assert by_hand.is_dir()
    assert data.is_dir()


def test_remove_takes_what_was_listed_and_nothing_else(home: Home) -> None:
    old, young = home.run("deepspark_train/old", age=31), home.run("deepspark_train/young", age=2)
    data = home.dataset("digits", age=31)
    (home.root / "runs" / "notes").mkdir()  # no run, no DAG's folder
    (home.root / "models").mkdir()
    listed = home.clean()
    removal = home.clean(remove=True)
    assert goes(removal) == goes(listed)
    assert all(entry.removed for entry in removal.entries if entry.goes)
    assert not old.exists()
    assert not data.exists()
    assert {path.name for path in (home.root / "runs").iterdir()} == {"deepspark_train", "notes"}
    assert list((home.root / "runs" / "deepspark_train").iterdir()) == [young]
    assert home.clean(remove=True).lines() == ["nothing to remove; 1 folders stay"]


@pytest.mark.parametrize("sign", ["config", "stage", "stamp"])
def test_a_run_that_begins_while_others_are_removed_keeps_its_dataset(home: Home, sign: str) -> None:
    """References were read once, then folders were removed for minutes."""
    first, second = home.dataset("a", age=500), home.dataset("b", age=400)
    run = home.root / "runs" / "new"

    def begin(_: str) -> None:
        if sign == "stamp":
            DatasetPaths(second).used.touch()
            os.utime(DatasetPaths(second).used, (NOW, NOW))
            return
        (run / "stages").mkdir(parents=True, exist_ok=True)
        file = run / ("config.json" if sign == "config" else "stages/ingest.json")
        file.write_text(json.dumps({"dataset": str(second)}))

    config = parse_config(CleanConfig, {"home": home.root, "keep_runs": 0, "keep_datasets": 0, "remove": True})
    report = clean(config, on_step=begin, now=NOW)
    assert not first.exists()
    assert second.is_dir()
    assert reasons(report) == {"b": "somebody has begun to use it"}


def test_the_newest_of_each_dag_and_the_newest_datasets_stay(home: Home) -> None:
    for age in (100, 200, 300):
        home.run(f"deepspark_train/t{age}", age=age)
        home.run(f"deepspark_retrain/r{age}", age=age)
        home.dataset(f"d{age}", age=age)
    assert goes(home.clean(keep_runs=2, keep_datasets=1)) == {"t300", "r300", "d200", "d300"}


def test_what_a_run_that_stays_names_stays_through_any_number_of_runs(home: Home) -> None:
    used, first, unused = (home.dataset(name, age=500) for name in ("used", "first", "unused"))
    start = home.run("deepspark_train/start", age=400, dataset=first)
    middle = home.run("deepspark_train/middle", age=300, weights=f"/none/a,{start}/snapshots/weights")
    young = home.run("deepspark_train/young", age=1, dataset=used, resume=middle / "snapshots/weights")
    home.run("deepspark_train/other", age=300, dataset=unused)
    report = home.clean()
    assert goes(report) == {"other", "unused"}
    assert reasons(report)["used"] == "run young uses it, which stays: changed in the last 30 days"
    # A training that has not begun has no config yet: the config of its ingestion counts.
    (young / "config.json").unlink()
    (young / "stages").mkdir()
    (young / "stages" / "ingest.json").write_text(json.dumps({"ingest": [{"output": str(unused)}]}))
    assert goes(home.clean()) == {"other", "start", "middle", "used", "first"}


def test_a_comparison_and_its_trials_stay_and_go_together(home: Home) -> None:
    for name, age in (("kept", 300), ("gone", 400)):
        parent = home.run(f"deepspark_compare/{name}", age=age)
        runs = [f"{name}__trial_{number:02d}" for number in (1, 2)]
        folders = [home.run(f"deepspark_compare/{run}", age=age + 50) for run in runs]
        trials = [
            Trial(number=number, name=run, values={}, run=run, run_dir=str(folder))
            for number, (run, folder) in enumerate(zip(runs, folders, strict=True), start=1)
        ]
        write_plan(parent, Plan(dag="deepspark_compare", run=name, target_accuracy=None, trials=tuple(trials)))
        for folder in (parent, *folders):
            home.aged(folder, age)
    # A page of one trial was written yesterday: a sign of use of the whole comparison.
    home.aged(home.root / "runs" / "deepspark_compare" / "kept__trial_02", 1)
    assert goes(home.clean()) == {"gone", "gone__trial_01", "gone__trial_02"}


def test_what_a_models_version_came_from_stays(home: Home) -> None:
    data, first, second = home.dataset("d", age=500), home.run("a/first", age=300), home.run("a/second", age=200)
    home.run("a/third", age=100)
    config = PromoteConfig(models=home.root / "models", model="digits", keep=1)
    # The manifest's digest identifies the dataset: the run's config does not name the dataset.
    digests = {"train": split_digests(data)["train"]}
    for run, against in ((first, None), (second, "v1")):
        bundle = make_bundle(run / "bundle", run.name.encode(), run=run.name, datasets=digests)
        decision = decide(evaluation([0], [0]), None, config, against=against).model_copy(update={"promotes": True})
        promote(bundle, decision, config, Author("anna"), run_dir=run)
        home.aged(run, 200)
    report = home.clean()
    assert goes(report) == {"first", "third"}  # the bundle of v1 is gone: there is nothing to roll back to
    assert reasons(report)["second"] == "v2 of model digits came from it, which is in production"
    assert reasons(report)["d"] == reasons(report)["second"]
    (home.root / "models" / "digits" / "production.json").write_text("{")
    with pytest.raises(DataError, match=r"production\.json"):
        home.clean(remove=True)
    assert (home.root / "runs" / "a" / "third").is_dir()


def test_a_dataset_stays_that_a_run_elsewhere_reads(home: Home, tmp_path_factory: pytest.TempPathFactory) -> None:
    read, unread = home.dataset("read", age=300), home.dataset("unread", age=300)
    run, run_elsewhere = home.run("a", age=300, dataset=unread), tmp_path_factory.mktemp("run")
    note_user(unread, run, "sha256:1")
    note_user(read, run_elsewhere, "sha256:2")
    for folder in (read, unread):
        home.aged(folder, 300)
    report = home.clean()
    assert goes(report) == {"a", "unread"}
    assert reasons(report)["read"].startswith(f"run {run_elsewhere} of host ")
    run_elsewhere.rmdir()
    assert goes(home.clean()) == {"a", "read", "unread"}


def test_links_are_neither_followed_nor_removed(home: Home, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = Home(tmp_path_factory.mktemp("elsewhere"))
    outside, foreign = elsewhere.run("outside", age=300), elsewhere.dataset("foreign", age=300)
    old = home.run("deepspark_train/old", age=300)
    (old / "link").symlink_to(outside)
    home.aged(old, 300)
    (home.root / "runs" / "deepspark_train" / "linked").symlink_to(outside)
    (home.root / "runs" / "linked_dag").symlink_to(elsewhere.root / "runs")
    (home.root / "datasets").mkdir()
    (home.root / "datasets" / "linked").symlink_to(foreign)
    report = home.clean(remove=True)
    assert [entry.path for entry in report.entries] == [str(old)]
    assert not old.exists()
    assert (outside / "snapshots" / "weights").is_file()
    assert is_dataset(foreign)
    assert (home.root / "runs" / "linked_dag").is_symlink()

    (home.root / "datasets" / "linked").unlink()
    (home.root / "datasets").rmdir()
    (home.root / "datasets").symlink_to(elsewhere.root / "datasets")
    with pytest.raises(ConfigError, match=r"datasets is a link to .*; nothing behind a link is removed"):
        home.clean(remove=True)


def test_a_dataset_that_is_being_ingested_stays(home: Home) -> None:
    data = home.dataset("digits", age=300)
    with (home.root / "datasets" / ".digits.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert reasons(home.clean(remove=True)) == {"digits": "somebody has begun to use it"}
    assert data.is_dir()
    home.clean(remove=True)
    assert not data.exists()


def test_a_run_whose_config_is_damaged_stops_everything(home: Home) -> None:
    run, old = home.run("a/young", age=1), home.run("a/old", age=300)
    (run / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config\.json: no JSON, so what the run refers to is not known"):
        home.clean(remove=True)
    assert old.is_dir()


def test_the_next_removal_ends_a_half_done_removal(home: Home) -> None:
    home.run("a/young", age=1)
    half = home.run("a/.removed.old", age=300)
    home.clean()
    assert half.is_dir()
    home.clean(remove=True)
    assert not half.exists()


def test_a_folder_that_is_no_home_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^home=.*/none: no such folder$"):
        Home(tmp_path / "none").clean()


def test_bytes_that_another_version_has_too_are_not_counted_and_stay(home: Home) -> None:
    """Two versions of a dataset share a shard by a hard link; the stage named the older one as ``previous``."""
    old, new = home.dataset("old", age=90), home.dataset("new", age=1)
    shard = old / "train" / "a.lmdb"
    shard.write_bytes(b"x" * 5000)
    own_shard = old / "train" / "b.lmdb"
    own_shard.write_bytes(b"y" * 300)
    os.link(shard, new / "train" / "a.lmdb")
    home.aged(old, 90)
    run = home.run("r", age=1, dataset=new)
    stages = RunPaths(run).stages
    stages.mkdir()
    (stages / "ingest.json").write_text(json.dumps({"output": str(new), "previous": str(old)}))
    report = home.clean(remove=True)
    entries = {Path(entry.path).name: entry for entry in report.entries}
    assert entries["old"].removed
    assert 300 < entries["old"].bytes < 1000
    assert (new / "train" / "a.lmdb").read_bytes() == b"x" * 5000
