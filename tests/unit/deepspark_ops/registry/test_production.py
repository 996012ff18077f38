import json
import re

import pytest

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.registry.gate import decide
from deepspark_ops.registry.production import (
    production_weights,
    promote,
    read_production,
    version_folder,
)
from tests.reference.bundles import make_bundle
from tests.reference.evaluations import evaluation


@pytest.fixture
def config(tmp_path):
    return PromoteConfig(models=tmp_path / "models", model="digits")


def test_nothing_in_production_is_none(config):
    assert read_production(config.models, config.model) is None
    assert production_weights(config.models, config.model) is None


def test_promotion_copies_the_bundle_and_moves_the_pointer(config, tmp_path):
    decision = decide(evaluation([0], [0]), None, config)
    first = promote(make_bundle(tmp_path / "a"), "run-1", decision, config)
    second = promote(make_bundle(tmp_path / "b", b"better"), "run-2", decision, config)
    assert (first.previous, second.previous) == (None, "run-1")
    assert production_weights(config.models, config.model).read_bytes() == b"better"
    assert (version_folder(config.models, "digits", "run-1") / "weights.caffemodel").read_bytes() == b"weights"
    assert read_production(config.models, config.model) == second
    assert sorted(path.name for path in (config.models / "digits").iterdir()) == ["production.json", "versions"]


def test_repeating_a_promotion_changes_nothing(config, tmp_path):
    bundle = make_bundle(tmp_path / "a")
    decision = decide(evaluation([0], [0]), None, config)
    first = promote(bundle, "run-1", decision, config)
    assert promote(bundle, "run-1", decision, config) == first


def test_version_never_changes(config, tmp_path):
    decision = decide(evaluation([0], [0]), None, config)
    promote(make_bundle(tmp_path / "a"), "run-1", decision, config)
    with pytest.raises(DataError, match=r"holds another bundle .*a version never changes, choose a new name$"):
        promote(make_bundle(tmp_path / "b", b"other"), "run-1", decision, config)


def test_decision_against_is_binding(config, tmp_path):
    decision = decide(evaluation([1], [0]), evaluation([0], [0]), config)
    with pytest.raises(ConfigError, match="only a better model goes into production"):
        promote(make_bundle(tmp_path / "a"), "run-1", decision, config)
    assert not config.models.exists()


@pytest.mark.parametrize("version", ["../up", "", ".hidden", "a/b", "x" * 201])
def test_version_must_be_a_plain_name(config, tmp_path, version):
    with pytest.raises(ConfigError, match=f"^version={re.escape(repr(version))}: allowed: letters, digits"):
        promote(make_bundle(tmp_path / "a"), version, decide(evaluation([0], [0]), None, config), config)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_bundle_is_not_promoted(config, tmp_path, damage):
    bundle = make_bundle(tmp_path / "a")
    if damage == "changed":
        (bundle / "weights.caffemodel").write_bytes(b"x")
    else:
        (bundle / "weights.caffemodel").unlink()
    words = "has changed since" if damage == "changed" else "is missing"
    with pytest.raises(DataError, match=f"weights.caffemodel {words}"):
        promote(bundle, "run-1", decide(evaluation([0], [0]), None, config), config)


def test_pointer_to_a_version_that_is_gone_is_an_error(config, tmp_path):
    promote(make_bundle(tmp_path / "a"), "run-1", decide(evaluation([0], [0]), None, config), config)
    (version_folder(config.models, "digits", "run-1") / "weights.caffemodel").unlink()
    with pytest.raises(DataError, match="restore it or remove the file"):
        production_weights(config.models, config.model)


def test_damaged_pointer_is_an_error(config, tmp_path):
    promote(make_bundle(tmp_path / "a"), "run-1", decide(evaluation([0], [0]), None, config), config)
    pointer = config.models / "digits" / "production.json"
    values = json.loads(pointer.read_text())
    pointer.write_text(json.dumps({**values, "version": 7}))
    with pytest.raises(DataError, match=r"production.json: version: Input should be a valid string; remove the file"):
        read_production(config.models, config.model)
