"""Stage clean as a task: what a run's conf cannot make it remove."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from airflow.sdk import DAG

from deepspark_ops.config.clean import CleanConfig
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.operators.clean import DeepSparkCleanOperator
from deepspark_ops.operators.form import form_params
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.registry.changes import Author, promote
from deepspark_ops.registry.gate import decide
from tests.reference.bundles import make_bundle
from tests.reference.evaluations import evaluation
from tests.unit.deepspark_ops.operators.operator_calls import context, execute, operator_of

pytestmark = pytest.mark.airflow
YEAR_S = 365 * 86_400


def promoted_run(home: Path, models: Path, name: str) -> Path:
    """Return a run of a year ago with a model of its name in production."""
    run = home / "runs" / "deepspark_retrain" / name
    bundle = make_bundle(run / "bundle", name.encode(), run=name)
    config = PromoteConfig(models=models, model=name)
    promote(bundle, decide(evaluation([0], [0]), None, config), config, Author("anna"), run_dir=run)
    (run / "config.json").write_text("{}")
    for path in [run, *run.rglob("*")]:
        os.utime(path, (time.time() - YEAR_S,) * 2)
    return run


@pytest.mark.parametrize("served", ["models", "elsewhere/models"])
def test_a_run_with_other_models_removes_no_source_of_the_models_that_the_pages_show(
    tmp_path: Path, served: str
) -> None:
    locations = Places(tmp_path, tmp_path / "home", models_folder=tmp_path / served)
    of_pages = promoted_run(locations.home, locations.models, "digits")
    of_conf = promoted_run(locations.home, tmp_path / "others", "parts")
    unused = locations.home / "runs" / "deepspark_retrain" / "unused"
    unused.mkdir()
    (unused / "config.json").write_text("{}")
    for path in (unused / "config.json", unused):
        os.utime(path, (time.time() - YEAR_S,) * 2)
    with DAG("d", params=form_params([("Clean", CleanConfig)]), schedule=None) as dag:
        clean = operator_of(DeepSparkCleanOperator, dag, locations)
    conf = {"models": str(tmp_path / "others"), "remove": True, "keep_runs": 0}
    execute(clean, context(dag, conf=conf))
    assert not unused.exists()
    assert of_conf.is_dir()
    assert of_pages.is_dir()
