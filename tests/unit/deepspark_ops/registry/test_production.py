import json
import re

import pytest

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.metrics import MetricsReport
from deepspark_ops.export.manifest import BundleManifest, file_digest
from deepspark_ops.registry.production import (
    decide,
    production_weights,
    promote,
    read_production,
    version_folder,
)


def metrics(*, top1=0.9, loss=0.3, top5=None, digest="sha256:same", dataset="d"):
    scored = {
        "net": "n",
        "run": "r",
        "iteration": 1,
        "weights": "w",
        "weights_digest": "sha256:1",
        "dataset": dataset,
        "dataset_digest": digest,
        "split": "test",
        "score_blob": "ip",
    }
    return MetricsReport(
        format_version=1,
        created="2026-01-01T00:00:00+00:00",
        scored=scored,
        n_samples=10,
        n_ignored=0,
        top1=top1,
        top1_interval=(0.5, 1.0),
        top5=top5,
        loss=loss,
        classes=(),
        confusion=(),
        mistakes=(),
    )


def make_bundle(folder, weights=b"weights"):
    folder.mkdir()
    (folder / "weights.caffemodel").write_bytes(weights)
    manifest = BundleManifest(
        format_version=1,
        created="2026-01-01T00:00:00+00:00",
        net="n",
        inputs=(),
        output={"scores": "scores", "classes": "classes", "n_classes": 2, "labels": ()},
        origin={
            "run": "r",
            "iteration": 1,
            "weights": "w",
            "weights_digest": "x",
            "net_digest": "x",
            "solver_digest": "x",
            "config_digest": "x",
            "datasets": {},
            "started_from": None,
            "started_from_digest": None,
        },
        check={
            "n_samples": 1,
            "saved_model_max_relative_difference": 0.0,
            "caffemodel_max_relative_difference": 0.0,
            "allowed": 1e-4,
        },
        files={"weights.caffemodel": file_digest(folder / "weights.caffemodel")},
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return folder


@pytest.fixture
def config(tmp_path):
    return PromoteConfig(models=tmp_path / "models", model="digits")


def test_first_model_goes_in_unopposed(config):
    decision = decide(metrics(), None, config)
    assert decision.promotes
    assert decision.reason == "top1 0.9; no model in production yet"


@pytest.mark.parametrize(
    ("candidate", "production", "options", "promotes"),
    [
        ({"top1": 0.91}, {"top1": 0.9}, {}, True),
        ({"top1": 0.9}, {"top1": 0.9}, {}, False),
        ({"top1": 0.89}, {"top1": 0.9}, {}, False),
        ({"top1": 0.91}, {"top1": 0.9}, {"min_gain": 0.02}, False),
        ({"top1": 0.75}, {"top1": 0.5}, {"min_gain": 0.25}, True),
        ({"loss": 0.2}, {"loss": 0.3}, {"metric": "loss"}, True),
        ({"loss": 0.4}, {"loss": 0.3}, {"metric": "loss"}, False),
        ({"top5": 0.4}, {"top5": 0.3}, {"metric": "top5"}, True),
    ],
)
def test_only_the_better_one_is_promoted(config, candidate, production, options, promotes):
    config = config.model_copy(update=options)
    assert decide(metrics(**candidate), metrics(**production), config).promotes is promotes


def test_reason_names_both_values(config):
    decision = decide(metrics(top1=0.9), metrics(top1=0.95), config.model_copy(update={"min_gain": 0.01}))
    assert decision.reason == (
        "top1 0.9 against 0.95 in production: kept production, the candidate is not at least 0.01 better"
    )


def test_scores_on_different_samples_are_not_compared(config):
    with pytest.raises(DataError) as caught:
        decide(metrics(), metrics(digest="sha256:other", dataset="old"), config)
    assert str(caught.value) == (
        "candidate was scored on d (sha256:same), production on old (sha256:other); evaluate both on the same data"
    )


def test_metric_that_is_not_defined_is_refused(config):
    with pytest.raises(ConfigError, match=r"^metric=top5: not defined for 0 classes; allowed here: top1, loss$"):
        decide(metrics(), None, config.model_copy(update={"metric": "top5"}))


def test_nothing_in_production_is_none(config):
    assert read_production(config.models, config.model) is None
    assert production_weights(config.models, config.model) is None


def test_promotion_copies_the_bundle_and_moves_the_pointer(config, tmp_path):
    decision = decide(metrics(), None, config)
    first = promote(make_bundle(tmp_path / "a"), "run-1", decision, config)
    second = promote(make_bundle(tmp_path / "b", b"better"), "run-2", decision, config)
    assert (first.previous, second.previous) == (None, "run-1")
    assert production_weights(config.models, config.model).read_bytes() == b"better"
    assert (version_folder(config.models, "digits", "run-1") / "weights.caffemodel").read_bytes() == b"weights"
    assert read_production(config.models, config.model) == second
    assert sorted(path.name for path in (config.models / "digits").iterdir()) == ["production.json", "versions"]


def test_repeating_a_promotion_changes_nothing(config, tmp_path):
    bundle = make_bundle(tmp_path / "a")
    decision = decide(metrics(), None, config)
    first = promote(bundle, "run-1", decision, config)
    assert promote(bundle, "run-1", decision, config) == first


def test_version_never_changes(config, tmp_path):
    decision = decide(metrics(), None, config)
    promote(make_bundle(tmp_path / "a"), "run-1", decision, config)
    with pytest.raises(DataError, match=r"holds another bundle .*a version never changes, choose a new name$"):
        promote(make_bundle(tmp_path / "b", b"other"), "run-1", decision, config)


def test_decision_against_is_binding(config, tmp_path):
    decision = decide(metrics(top1=0.1), metrics(), config)
    with pytest.raises(ConfigError, match="only a better model goes into production"):
        promote(make_bundle(tmp_path / "a"), "run-1", decision, config)
    assert not config.models.exists()


@pytest.mark.parametrize("version", ["../up", "", ".hidden", "a/b", "x" * 201])
def test_version_must_be_a_plain_name(config, tmp_path, version):
    with pytest.raises(ConfigError, match=f"^version={re.escape(repr(version))}: allowed: letters, digits"):
        promote(make_bundle(tmp_path / "a"), version, decide(metrics(), None, config), config)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_bundle_is_not_promoted(config, tmp_path, damage):
    bundle = make_bundle(tmp_path / "a")
    if damage == "changed":
        (bundle / "weights.caffemodel").write_bytes(b"x")
    else:
        (bundle / "weights.caffemodel").unlink()
    words = "has changed since" if damage == "changed" else "is missing"
    with pytest.raises(DataError, match=f"weights.caffemodel {words}"):
        promote(bundle, "run-1", decide(metrics(), None, config), config)


def test_pointer_to_a_version_that_is_gone_is_an_error(config, tmp_path):
    promote(make_bundle(tmp_path / "a"), "run-1", decide(metrics(), None, config), config)
    (version_folder(config.models, "digits", "run-1") / "weights.caffemodel").unlink()
    with pytest.raises(DataError, match="restore it or remove the file"):
        production_weights(config.models, config.model)


def test_damaged_pointer_is_an_error(config, tmp_path):
    promote(make_bundle(tmp_path / "a"), "run-1", decide(metrics(), None, config), config)
    pointer = config.models / "digits" / "production.json"
    values = json.loads(pointer.read_text())
    pointer.write_text(json.dumps({**values, "version": 7}))
    with pytest.raises(DataError, match=r"production.json: version: Input should be a valid string; remove the file"):
        read_production(config.models, config.model)
