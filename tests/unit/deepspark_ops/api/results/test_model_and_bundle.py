"""A model's and a bundle's objects, as promotions leave them; and a simulation's."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepspark_ops as ds
from deepspark_ops.api.results.check_report import CheckReport
from deepspark_ops.api.results.simulation import Simulation
from tests.reference.bundles import make_bundle
from tests.reference.command_line import invoke
from tests.reference.evaluations import answers_with, evaluation, write_evaluation
from tests.unit.deepspark_ops.simulation.small_results import result
from tests.unit.deepspark_ops.simulation.test_report import simulation_report

LABELS = [0, 1] * 50
NAME = "digits<b>"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ds.Model:
    monkeypatch.chdir(tmp_path)
    for run_name, n_wrong in (("first", 9), ("second", 0)):
        evaluated = evaluation(answers_with(LABELS, range(n_wrong)), LABELS, weights=run_name)
        run = tmp_path / "runs" / run_name
        digest = f"sha256:{run_name}"
        make_bundle(run / "bundle", run_name.encode(), run=run_name, evaluated=evaluated, weights_digest=digest)
        (run / "config.json").write_text("{}")
        write_evaluation(run / "evaluation", evaluated)
        result = invoke("models", "promote", "digits", f"runs/{run_name}", "--reason", "x")
        assert result.exit_code == 0, result.output
    (tmp_path / "models" / "digits").rename(tmp_path / "models" / NAME)
    return ds.Model(f"models/{NAME}")


def test_model_has_its_versions_and_the_one_in_production(model: ds.Model) -> None:
    assert model.production is not None
    assert model.production.manifest.origin.run == "second"
    assert model.version(1).manifest.origin.run == "first"
    assert model.version("v2") == model.production
    assert ds.open(model.folder) == model
    with pytest.raises(ds.ConfigError, match=r"version=7: .* keeps the bundles of v1, v2"):
        model.version(7)
    html = model._repr_html_()
    assert "digits&lt;b&gt;" in html
    assert "<b>" not in html.replace("<b>Model:", "")
    assert html.index(">v2<") < html.index("in production</td>") < html.index(">v1<")


def test_run_shows_evaluation_and_bundle(model: ds.Model, tmp_path: Path) -> None:
    run = ds.Run(tmp_path / "runs" / "first")
    assert run.bundle == ds.Bundle(run.folder / "bundle")
    assert run.metrics.main.value == pytest.approx(0.91)
    assert "top1=0.91" in run._repr_html_()
    assert "91.0 %" in run.evaluation._repr_html_()
    assert repr(run.metrics) == str(run.metrics)
    assert str(run.metrics).startswith("ClassificationMetrics(top1=0.9100 loss=")
    assert len(str(run.metrics)) < 100
    assert ds.open(run.folder / "evaluation") == run.evaluation
    assert run.bundle is not None
    assert "first" in run.bundle._repr_html_()


def test_simulation_is_a_table_a_figure_and_a_card(tmp_path: Path) -> None:
    report = simulation_report([result("easgd", 1, 0, [0.1, 0.8]), result("easgd", 4, 0, [0.2, 0.7])])
    (tmp_path / "simulation.json").write_text(report.model_dump_json())
    simulation = ds.open(tmp_path)
    assert isinstance(simulation, Simulation)
    assert simulation.frame.workers.tolist() == [1, 4]
    assert simulation.frame.accuracy.tolist() == [row.accuracy for row in report.rows]
    assert [list(trace.y) for trace in simulation.plot().data] == [[0.1, 0.8], [0.2, 0.7]]
    assert "Simulation: " in simulation._repr_html_()
    (tmp_path / "simulation.json").write_text("{}")
    with pytest.raises(ds.ConfigError, match=r"damaged .*; simulate again"):
        simulation.frame  # noqa: B018


def test_check_keeps_the_errors_of_a_net(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(
        'name: "<i>" layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 4 } } }'
        ' layer { name: "ip" type: "InnerProduct" bottom: "dta" top: "ip" inner_product_param { num_output: 2 } }'
    )
    (tmp_path / "solver.prototxt").write_text(
        f'net: "{tmp_path}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 10 snapshot_prefix: "x"'
    )
    report = ds.check(tmp_path / "solver.prototxt")
    assert isinstance(report, CheckReport)
    assert not report.is_ok
    assert '"dta"' in report.errors[0]
    assert f"error: {report.errors[0]}" in str(report)
    counts = f"{len(report.errors)} errors, {len(report.warnings)} warnings"
    assert repr(report) == f"CheckReport({report.report.solver!r}: {counts})"
    assert "&#34;dta&#34;" in report._repr_html_()
