"""A net that is no classifier from training into production, twice: evaluation, export, the gate, the registry."""

import numpy as np
import pytest

from deepspark_ops.config.evaluate import EvaluateConfig, ScoreBundleConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.evaluate.evaluation_folder import read_evaluation
from deepspark_ops.evaluate.stage import run_evaluate
from deepspark_ops.export.bundle import write_bundle
from deepspark_ops.export.scores.bundle_scores import score_bundle
from deepspark_ops.registry.candidate import PRODUCTION_EVALUATION, decide_against
from deepspark_ops.registry.changes import Author, promote
from deepspark_ops.registry.gate import decide
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.production import read_production, version_folder
from deepspark_ops.registry.versions import read_versions
from tests.integration.evaluate.test_tasks import product, trained
from tests.reference.layer_text import loss_layer

pytestmark = pytest.mark.tf
LAYERS = [product("ip", "x", 2), loss_layer("EuclideanLoss", "ip", "y")]


def export(run):
    config = ExportConfig(run_dir=run.root, formats="saved_model,caffe")
    return write_bundle(config, on_step=lambda text: None).folder


def test_a_regression_goes_into_production_and_is_replaced_by_a_better_one(tmp_path):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(87, 6))
    columns = {"x": x, "y": x @ rng.normal(size=(6, 2)) + rng.normal(size=(87, 2))}
    config = PromoteConfig(
        models=tmp_path / "models", model="lines", max_slowdown=1.0
    )  # speed is that of a busy machine
    model = ModelFolder(config.models / config.model)

    first = trained(tmp_path / "first", LAYERS, columns, n_steps=2)[0]
    decision = decide(read_evaluation(first.evaluation), None, config)
    promote(export(first), decision, config, Author("me"), run_dir=first.root)
    production = read_production(config.models, config.model)

    better = trained(tmp_path / "better", LAYERS, columns)[0]
    scored = better.root / PRODUCTION_EVALUATION
    bundle = version_folder(config.models, production)
    in_production = score_bundle(ScoreBundleConfig(run_dir=better.root, bundle=bundle, output=scored))
    of_run = read_evaluation(first.evaluation).metrics
    assert in_production.main.value == pytest.approx(of_run.main.value, rel=1e-4)
    assert in_production.scored.dataset_digest == of_run.scored.dataset_digest
    evaluation = run_evaluate(EvaluateConfig(run_dir=better.root, production=scored))
    assert "Against production" in evaluation.report_path.read_text()

    candidate = read_evaluation(better.evaluation)
    decision = decide_against(candidate, read_evaluation(scored), bundle, config)
    assert decision.reason.startswith(f"promoted: RMSE {candidate.metrics.main.text()} against")
    folder = export(better)
    assert "| RMSE |" in (folder / "README.md").read_text()
    promote(folder, decision, config, Author("me"), run_dir=better.root)
    versions = read_versions(model)
    assert [version.version for version in versions] == ["v1", "v2"]
    assert versions[1].figures.judged_by() == candidate.metrics.main
    assert version_folder(config.models, read_production(config.models, config.model)).name != bundle.name
    assert not decide(read_evaluation(scored), candidate, config).promotes  # the other way round production stays
