"""Promotion, rollback and retention: what moves, what stays, and what the history says."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.registry import changes
from deepspark_ops.registry.changes import Author, note_rejected, promote, roll_back
from deepspark_ops.registry.journal import read_history
from deepspark_ops.registry.model_folder import RegistryBusy
from deepspark_ops.registry.production import production_weights, read_production, version_folder
from deepspark_ops.registry.versions import read_versions
from tests.unit.deepspark_ops.registry.conftest import ANNA


def weights(config):
    return production_weights(config.models, config.model).read_bytes()


def history(model, config):
    return read_history(model, read_production(config.models, config.model).change)


def test_nothing_in_production_is_none(config):
    assert read_production(config.models, config.model) is None
    assert production_weights(config.models, config.model) is None


def test_promotion_copies_the_bundle_numbers_it_and_moves_the_pointer(registry, config, model):
    first = registry.promote("run-1")
    second = registry.promote("run-2", against="v1", author=Author("bob", "better data"))
    assert (first.version, first.previous, first.change) == ("v1", None, 1)
    assert (second.version, second.previous, second.change, second.who) == ("v2", "v1", 2, "bob")
    assert weights(config) == b"run-2"
    assert (model.bundle("v1") / "weights.caffemodel").read_bytes() == b"run-1"
    assert version_folder(config.models, second) == model.bundle("v2")
    assert read_production(config.models, config.model) == second
    assert sorted(path.name for path in model.versions.iterdir()) == ["v1", "v1.json", "v2", "v2.json"]
    entries = [
        (entry.action, entry.version, entry.previous, entry.who, entry.comment) for entry in history(model, config)
    ]
    assert entries == [("promoted", "v1", None, "anna", None), ("promoted", "v2", "v1", "bob", "better data")]


def test_record_keeps_where_a_version_comes_from(registry, model, tmp_path):
    registry.promote("run-1")
    start = file_digest(model.bundle("v1") / "weights.caffemodel")
    registry.promote(
        "run-2", against="v1", started_from_digest=start, code_version="9.8", datasets={"train": "sha256:d"}
    )
    first, second = read_versions(model)
    assert (first.started_from, second.started_from) == (None, "v1")
    assert (second.origin.run, second.origin.code_version, second.origin.datasets) == (
        "run-2",
        "9.8",
        {"train": "sha256:d"},
    )
    assert second.run_dir == str(tmp_path / "runs" / "run-2")
    assert second.manifest_digest == file_digest(model.bundle("v2") / "manifest.json")
    assert second.weights_digest == file_digest(model.bundle("v2") / "weights.caffemodel")


def test_repeating_a_promotion_changes_nothing(registry, config, model):
    first = registry.promote("run-1")
    old_files = {path: path.read_bytes() for path in model.root.rglob("*") if path.is_file()}
    repeated = promote(config.models.parent / "runs/run-1/bundle", registry.decision(), config, ANNA)
    assert repeated == first
    assert {path: path.read_bytes() for path in model.root.rglob("*") if path.is_file()} == old_files


def test_promotion_that_was_cut_off_before_the_pointer_goes_on(registry, config, model, monkeypatch):
    registry.promote("run-1")

    def fail(*_):
        raise OSError("power cut")

    with monkeypatch.context() as broken:
        broken.setattr(changes, "write_pointer", fail)
        with pytest.raises(OSError, match="power cut"):
            registry.promote("run-2", against="v1")
    # What never took effect is not told.
    assert weights(config) == b"run-1"
    assert [entry.version for entry in history(model, config)] == ["v1"]
    bundle = config.models.parent / "runs/run-2/bundle"
    second = promote(bundle, registry.decision(against="v1"), config, ANNA, run_dir=bundle.parent)
    assert (second.version, second.change) == ("v2", 2)
    assert [(entry.version, entry.change) for entry in history(model, config)] == [("v1", 1), ("v2", 2)]
    assert [record.version for record in read_versions(model)] == ["v1", "v2"]


KILLED_PROMOTION = """
import sys, time
from pathlib import Path
from deepspark_ops.registry import changes
from deepspark_ops.registry.model_folder import ModelFolder

bundle, model = map(Path, sys.argv[1:])
with changes._copied(bundle, ModelFolder(model)):
    print("copied", flush=True)
    time.sleep(600)
"""


def test_copy_of_a_killed_promotion_is_removed_by_the_next_and_a_copy_in_use_is_not(registry, config, model):
    registry.promote("run-1")
    command = [sys.executable, "-c", KILLED_PROMOTION, str(model.bundle("v1")), str(model.root)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        assert [process.stdout.readline() for process in processes] == ["copied\n", "copied\n"]
        processes[0].kill()
        processes[0].wait(60)
        registry.promote("run-2", against="v1")
        (copy,) = (path for path in model.versions.iterdir() if path.name.startswith(".new.") and path.is_dir())
        assert (copy / "weights.caffemodel").read_bytes() == b"run-1"
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=60)
    registry.promote("run-3", against="v2")
    assert not list(model.versions.glob(".new.*"))


def test_torn_line_of_the_history_is_passed_over(registry, config, model):
    registry.promote("run-1")
    with model.journal.open("a") as journal:
        journal.write('{"format_version": 1, "at": "2026')
    registry.promote("run-2", against="v1")
    assert [entry.version for entry in history(model, config)] == ["v1", "v2"]


def test_whole_line_of_another_form_is_an_error(registry, config, model):
    registry.promote("run-1")
    with model.journal.open("a") as journal:
        journal.write('{"format_version": 3}\n')
    with pytest.raises(DataError, match=r"journal\.jsonl:2: format_version: Input should be 1 or 2; restore the line"):
        history(model, config)


def test_two_promotions_at_once_lose_nothing(registry, config, model):
    bundles = [registry.bundle(f"run-{k}") for k in range(8)]
    # Forced: neither is refused because the other was first.
    forced = registry.decision().model_copy(update={"is_forced": True})
    start = threading.Barrier(len(bundles))

    def go(bundle):
        start.wait(30)
        promote(bundle, forced, config, Author(bundle.parent.name))

    threads = [threading.Thread(target=go, args=(bundle,)) for bundle in bundles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    entries = history(model, config)
    assert [entry.version for entry in entries] == [f"v{k}" for k in range(1, 9)]
    assert [entry.previous for entry in entries] == [None, *(f"v{k}" for k in range(1, 8))]
    assert {entry.who for entry in entries} == {f"run-{k}" for k in range(8)}
    assert read_production(config.models, config.model).version == "v8"


def test_rollback_of_what_is_no_more_in_production_is_refused(registry, config, model):
    registry.promote("run-1")
    registry.promote("run-2", against="v1")
    with pytest.raises(ConfigError) as caught:
        roll_back(model, ANNA, to="v1", was="v1")
    assert str(caught.value) == 'model "digits": v2 is in production by now, no more v1; look at it again'
    assert roll_back(model, ANNA, to="v1", was="v2").version == "v1"


def test_lock_that_is_held_too_long_names_itself(model):
    with model.locked(), pytest.raises(RegistryBusy) as caught, model.locked(timeout_s=0.05):
        pass
    assert str(caught.value) == (
        f'{model.root}/.lock: another promotion or rollback of model "digits" has held it for 0.05 s; '
        "try again when it has ended"
    )


def test_decision_against_another_champion_is_not_carried_out(registry, config):
    registry.promote("run-1")
    registry.promote("run-2", against="v1")
    with pytest.raises(ConfigError, match=r"^the candidate was compared with v1, but v2 is in production now; decide"):
        registry.promote("run-3", against="v1")
    assert read_production(config.models, config.model).version == "v2"


def test_decision_against_is_binding(registry, config):
    with pytest.raises(ConfigError, match="only a better model goes into production"):
        promote(registry.bundle("run-1"), registry.decision(wrong=True), config, ANNA)
    assert not config.models.exists()


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_bundle_is_not_promoted(registry, config, damage):
    bundle = registry.bundle("run-1")
    if damage == "changed":
        (bundle / "weights.caffemodel").write_bytes(b"x")
    else:
        (bundle / "weights.caffemodel").unlink()
    words = "has changed since" if damage == "changed" else "is missing"
    with pytest.raises(DataError, match=f"runs/run-1/bundle: weights.caffemodel {words}"):
        promote(bundle, registry.decision(), config, ANNA)
    assert not config.models.exists()


class TestRollback:
    def test_goes_to_the_previous_version_each_time(self, registry, config, model):
        for k in (1, 2, 3):
            registry.promote(f"run-{k}", against=f"v{k - 1}" if k > 1 else None)
        assert roll_back(model, Author("eve", "v3 misreads sevens")).version == "v2"
        assert weights(config) == b"run-2"
        assert roll_back(model, Author("eve")).version == "v1"
        last = history(model, config)[-2:]
        assert [(entry.action, entry.version, entry.previous, entry.who) for entry in last] == [
            ("rolled back", "v2", "v3", "eve"),
            ("rolled back", "v1", "v2", "eve"),
        ]
        assert last[0].reason == "rolled back from v3 to v2: v3 misreads sevens"
        with pytest.raises(
            ConfigError, match=r'^model "digits": v1 is the first in production, nothing came before it$'
        ):
            roll_back(model, Author("eve"))

    def test_a_promotion_after_it_is_followed_back_to_where_it_came_from(self, registry, model):
        registry.promote("run-1")
        registry.promote("run-2", against="v1")
        roll_back(model, ANNA)
        assert registry.promote("run-3", against="v1").version == "v3"
        assert roll_back(model, ANNA).version == "v1"

    @pytest.mark.parametrize("to", ["v1", "1", "run-1"])
    def test_to_a_named_version(self, registry, model, to):
        for k in (1, 2, 3):
            registry.promote(f"run-{k}", against=f"v{k - 1}" if k > 1 else None)
        assert roll_back(model, ANNA, to=to).version == "v1"

    @pytest.mark.parametrize(
        ("to", "message"),
        [("9", "version='9': no such version; known: v1, v2"), ("v2", 'model "digits": v2 is in production already')],
    )
    def test_to_what_cannot_be(self, registry, model, to, message):
        registry.promote("run-1")
        registry.promote("run-2", against="v1")
        with pytest.raises(ConfigError) as caught:
            roll_back(model, ANNA, to=to)
        assert str(caught.value) == message

    def test_to_a_damaged_or_removed_bundle_is_refused(self, registry, config, model):
        registry.promote("run-1")
        registry.promote("run-2", against="v1")
        registry.promote("run-3", against="v2", keep=2)
        with pytest.raises(DataError, match=r"^v1: its bundle was removed \(option keep\); there are: v2, v3$"):
            roll_back(model, ANNA, to="v1")
        (model.bundle("v2") / "weights.caffemodel").write_bytes(b"x")
        with pytest.raises(DataError, match=r"weights\.caffemodel has changed"):
            roll_back(model, ANNA)
        assert weights(config) == b"run-3"

    def test_unknown_model(self, model):
        with pytest.raises(ConfigError, match=r"models/digits: no such model$"):
            roll_back(model, ANNA)
        assert not model.root.exists()

    def test_mends_a_damaged_pointer(self, registry, config, model):
        registry.promote("run-1")
        registry.promote("run-2", against="v1")
        model.production.write_text("{")
        with pytest.raises(DataError, match=r"production\.json: file: Invalid JSON.*roll back"):
            read_production(config.models, config.model)
        assert roll_back(model, ANNA, to="1").change == 3
        assert weights(config) == b"run-1"


class TestRetention:
    def test_oldest_bundles_go_and_records_stay(self, registry, config, model):
        for k in range(1, 6):
            registry.promote(f"run-{k}", against=f"v{k - 1}" if k > 1 else None, keep=2)
        assert sorted(path.name for path in model.versions.iterdir() if path.is_dir()) == ["v4", "v5"]
        assert [record.version for record in read_versions(model)] == ["v1", "v2", "v3", "v4", "v5"]
        removed = [entry for entry in history(model, config) if entry.action == "removed"]
        assert [(entry.version, entry.reason) for entry in removed] == [
            ("v1", "removed the bundle of v1: 2 are kept"),
            ("v2", "removed the bundle of v2: 2 are kept"),
            ("v3", "removed the bundle of v3: 2 are kept"),
        ]
        assert registry.promote("run-6", against="v5").version == "v6"  # a number is never used twice

    def test_what_is_in_production_is_never_removed(self, registry, config, model):
        for k in range(1, 5):
            registry.promote(f"run-{k}", against=f"v{k - 1}" if k > 1 else None)
        roll_back(model, ANNA, to="v1")
        changes._remove_old(model, 1, ANNA)
        assert weights(config) == b"run-1"
        assert sorted(path.name for path in model.versions.iterdir() if path.is_dir()) == ["v1"]


def test_candidate_that_stays_out_is_told_once(registry, config, model):
    registry.promote("run-1")
    decision = registry.decision(wrong=True).model_copy(update={"reason": "kept production: why"})
    for _ in range(2):  # a task that is tried again
        note_rejected(config, decision, Author("scheduled"), Path("runs/run-2"))
    last = history(model, config)[-1]
    assert len(history(model, config)) == 2
    assert (last.action, last.run, last.version, last.who, last.reason) == (
        "kept",
        "run-2",
        None,
        "scheduled",
        "kept production: why",
    )


def test_pointer_to_a_version_that_is_gone_is_an_error(registry, config, model):
    registry.promote("run-1")
    (model.bundle("v1") / "weights.caffemodel").unlink()
    with pytest.raises(DataError, match=r"restore it, or roll back: deepspark models rollback digits --to VERSION$"):
        production_weights(config.models, config.model)


class TestFolderOfRelease020:
    """Versions are named by runs, there are no records and no history."""

    @pytest.fixture(autouse=True)
    def old_folder(self, registry, model):
        for day, name in enumerate(("scheduled__b", "manual__a"), 1):
            bundle = registry.bundle(name)
            manifest = json.loads((bundle / "manifest.json").read_text())
            manifest |= {"format_version": 1, "created": f"2026-01-0{day}T00:00:00+00:00"}
            (bundle / "manifest.json").write_text(json.dumps(manifest))
            model.versions.mkdir(parents=True, exist_ok=True)
            bundle.rename(model.versions / name)
        decision = {"promotes": True, "metric": "top1", "candidate": 0.9, "production": 0.8}
        pointer = {
            "format_version": 1,
            "model": "digits",
            "version": "manual__a",
            "promoted": "2026-01-02T00:00:01+00:00",
            "manifest_digest": file_digest(model.versions / "manual__a" / "manifest.json"),
            "previous": "scheduled__b",
            "decision": {**decision, "dataset_digest": "sha256:d", "reason": "top1 0.9 against 0.8"},
        }
        model.production.write_text(json.dumps(pointer))

    def test_is_read_as_it_is(self, config, model):
        old_files = sorted(model.root.rglob("*"))
        production = read_production(config.models, config.model)
        assert (production.version, production.folder, production.previous) == ("v2", "manual__a", "v1")
        assert production.reason == "top1 0.9 against 0.8"
        assert weights(config) == b"manual__a"
        assert [(record.version, record.folder, record.created[:10]) for record in read_versions(model)] == [
            ("v1", "scheduled__b", "2026-01-01"),
            ("v2", "manual__a", "2026-01-02"),
        ]
        assert sorted(model.root.rglob("*")) == old_files

    def test_gets_numbers_and_a_history_with_the_first_write(self, registry, config, model):
        assert registry.promote("run-3", against="v2").version == "v3"
        assert sorted(path.name for path in model.versions.iterdir()) == [
            *("manual__a", "scheduled__b", "v1.json", "v2.json", "v3", "v3.json")
        ]
        assert [(entry.action, entry.version) for entry in history(model, config)] == [
            ("adopted", "v1"),
            ("adopted", "v2"),
            ("promoted", "v3"),
        ]
        assert json.loads(model.production.read_text())["format_version"] == 2

    def test_rolls_back_to_the_version_that_the_old_pointer_names(self, config, model):
        assert roll_back(model, ANNA).version == "v1"
        assert weights(config) == b"scheduled__b"
