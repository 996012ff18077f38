import json

import pytest

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.registry.changes import promote
from deepspark_ops.registry.integrity import bytes_to_verify, verify_model
from tests.unit.deepspark_ops.registry.conftest import ANNA


@pytest.fixture
def valid_model(registry, model):
    for k in (1, 2, 3):
        registry.promote(f"run-{k}", against=f"v{k - 1}" if k > 1 else None, keep=2)
    return model


def test_whole_model_says_what_was_compared(valid_model):
    versions = verify_model(valid_model)
    assert [(version.version, version.n_files, version.n_bytes) for version in versions] == [
        ("v1", 0, 0),
        ("v2", 1, 5),
        ("v3", 1, 5),
    ]


def test_bytes_to_verify_are_those_of_all_files_that_are_there(valid_model):
    manifests = sum((valid_model.bundle(version) / "manifest.json").stat().st_size for version in ("v2", "v3"))
    records = sum((valid_model.versions / f"v{k}.json").stat().st_size for k in (1, 2, 3))
    assert bytes_to_verify(valid_model) == 5 + 5 + manifests + records


def test_damage_is_named(valid_model):
    (valid_model.bundle("v2") / "weights.caffemodel").write_bytes(b"run-X")
    with pytest.raises(DataError) as caught:
        verify_model(valid_model)
    assert str(caught.value) == (
        f"{valid_model.bundle('v2')}: weights.caffemodel has changed since manifest.json was written; restore it, or "
        "roll back if v2 is in production"
    )


def test_files_that_no_manifest_lists_are_named(valid_model):
    bundle = valid_model.bundle("v2")
    (bundle / "saved_model" / "variables").mkdir(parents=True)  # folders alone are no files
    assert verify_model(valid_model)
    (bundle / "saved_model" / "variables" / "more.index").touch()
    (bundle / "fingerprint.pb").symlink_to("nowhere")
    with pytest.raises(DataError) as caught:
        verify_model(valid_model)
    assert str(caught.value) == (
        f"{bundle}: manifest.json of v2 does not list fingerprint.pb, saved_model/variables/more.index; move what is"
        " not of the model away"
    )
    for number in range(9):
        (bundle / f"{number}.txt").touch()
    with pytest.raises(DataError, match=r"list 0\.txt, 1\.txt, 2\.txt, 3\.txt, 4\.txt and 6 more; move"):
        verify_model(valid_model)


def test_a_promotion_leaves_files_behind_that_no_manifest_lists(registry, model):
    bundle = registry.bundle("run")
    (bundle / "tried").mkdir()
    (bundle / "tried" / "predictions.parquet").touch()
    production = promote(bundle, registry.decision(), registry.config, ANNA)
    assert sorted(path.name for path in model.bundle(production.folder).iterdir() if path.is_file()) == [
        "manifest.json",
        "weights.caffemodel",
    ]
    assert [version.version for version in verify_model(model)] == ["v1"]


def test_manifest_that_was_made_to_fit_is_found(valid_model):
    path = valid_model.bundle("v2") / "manifest.json"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(DataError, match=r"v2/manifest.json of v2 has changed: sha256:\w+, recorded sha256:"):
        verify_model(valid_model)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda model: (model.bundle("v2") / "manifest.json").unlink(), "v2: manifest.json of v2 is missing"),
        (
            lambda model: model.bundle("v2").rename(model.versions / ".gone"),
            "the bundle of v2 is missing, and the history does not say that it was removed",
        ),
        (
            lambda model: model.bundle("v3").rename(model.versions / ".gone"),
            "v3 is in production, but its bundle is missing; restore the bundle or roll back",
        ),
        (lambda model: model.record("v2").write_text("{}"), r"v2\.json: format_version: Field required; restore it"),
        (lambda model: model.production.write_text("[]"), r"production\.json: file: Input should be"),
    ],
)
def test_what_is_missing_or_damaged_is_named(valid_model, damage, message):
    damage(valid_model)
    with pytest.raises(DataError, match=message):
        verify_model(valid_model)


def test_pointer_that_disagrees_with_the_record_is_found(valid_model):
    values = json.loads(valid_model.production.read_text())
    valid_model.production.write_text(json.dumps({**values, "manifest_digest": "sha256:0"}))
    with pytest.raises(
        DataError, match="the manifest of v3 had sha256:0 when it was promoted, its record says sha256:"
    ):
        verify_model(valid_model)


def test_unknown_model(model):
    with pytest.raises(ConfigError, match=r"models/digits: no such model$"):
        verify_model(model)
