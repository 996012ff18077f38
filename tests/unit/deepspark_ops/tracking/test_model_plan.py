from __future__ import annotations

import pytest

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.registry.changes import Author, promote, roll_back
from deepspark_ops.registry.gate import decide
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.tracking.model_plan import (
    DIGEST_TAG,
    ModelPlan,
    ModelVersion,
    NumbersDiffer,
    Registered,
    missing_versions,
    plan_model,
)
from deepspark_ops.tracking.transfer import TransferState, write_transfer
from tests.reference.bundles import make_bundle
from tests.reference.evaluations import evaluation


def plan_of_versions(*numbers: int) -> ModelPlan:
    return ModelPlan("digits", tuple(ModelVersion(n, f"v{n}", {DIGEST_TAG: f"sha256:{n}"}) for n in numbers), None)


def registered_versions(*numbers: int, highest: int | None = None) -> Registered:
    return Registered(highest, {n: f"sha256:{n}" for n in numbers}, None)


@pytest.mark.parametrize(
    ("registered", "missing"),
    [
        (registered_versions(), [1, 2, 3]),
        (registered_versions(1, highest=1), [2, 3]),
        (registered_versions(1, 2, highest=1), [3]),  # the process died between the version and the note
        (registered_versions(1, 2, 3, highest=3), []),
        (registered_versions(1, highest=2), [3]),  # somebody deleted 2 in MLflow, which goes on at 3
        (registered_versions(highest=3), []),
    ],
)
def test_versions_are_registered_where_mlflow_gives_them_their_own_number(registered: Registered, missing) -> None:
    assert [version.number for version in missing_versions(plan_of_versions(1, 2, 3), registered)] == missing


@pytest.mark.parametrize(
    ("plan", "registered", "message"),
    [
        (
            plan_of_versions(1),
            registered_versions(1, 2, highest=None),
            "MLflow has a version 2 .* that is not v2 of this one",
        ),
        (
            plan_of_versions(1, 2),
            Registered(None, {1: ""}, None),
            "MLflow has a version 1 .* that is not v1 of this one",
        ),
        (plan_of_versions(1, 2), Registered(1, {1: "sha256:9"}, None), "give one of the two models another name"),
        (
            plan_of_versions(1, 3),
            registered_versions(1, highest=1),
            r"MLflow goes on at version 2, but its next versions here are \[3\]",
        ),
        (
            plan_of_versions(2),
            registered_versions(),
            r"goes on at version 1, but its next versions here are \[2\]: records are missing",
        ),
    ],
)
def test_nothing_is_registered_where_numbers_would_differ(plan: ModelPlan, registered: Registered, message) -> None:
    with pytest.raises(NumbersDiffer, match=message):
        missing_versions(plan, registered)


def test_a_model_plan_has_versions_runs_and_production(tmp_path) -> None:
    config = PromoteConfig(models=tmp_path / "models", model="digits")
    model = ModelFolder(config.models / "digits")
    promoted = []
    for name in ("first", "second"):
        run = tmp_path / "runs" / name
        bundle = make_bundle(run / "bundle", name.encode(), run=name, evaluated=evaluation([0, 1], [0, 1]))
        decision = decide(evaluation([1], [1]), None, config, against=f"v{len(promoted)}" if promoted else None)
        promoted.append(promote(bundle, decision, config, Author("anna"), run_dir=run))
    write_transfer(tmp_path / "runs" / "second", TransferState(id="abc", run_id="r2"))
    first, second = plan_model(model).versions
    assert (first.number, first.digest, first.run) == (1, promoted[0].manifest_digest, None)
    assert (second.number, second.digest, second.run) == (2, promoted[1].manifest_digest, ("abc", "r2"))
    assert second.description == "v2: run second, top1=1.0000 loss=0.1054 of 2"
    assert second.tags["deepspark.folder"] == str(model.versions / "v2")
    assert plan_model(model).production == 2
    roll_back(model, Author("anna", "worse"), to="v1")
    assert plan_model(model).production == 1
