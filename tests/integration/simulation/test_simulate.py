"""The command: processes, the file of each run, what is made again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import SimulateConfig, VirtualRunConfig
from deepspark_ops.processes.job_log import StageFailed
from deepspark_ops.simulation import run_processes, simulate, stage
from deepspark_ops.simulation.results import write_result
from deepspark_ops.simulation.simulate import run_simulation
from tests.integration.simulation.test_virtual_run import SOLVER
from tests.integration.train.in_process import CAFFE
from tests.reference.command_line import invoke
from tests.unit.deepspark_ops.exchange.strategies.measured_table import measured_table
from tests.unit.deepspark_ops.simulation.small_results import result

pytestmark = pytest.mark.tf


@pytest.fixture
def solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(CAFFE)
    path = tmp_path / "solver.prototxt"
    path.write_text(SOLVER.read_text().replace("snapshot_prefix", "test_iter: 2 test_interval: 10 snapshot_prefix"))
    return path


def test_only_what_is_missing_is_run(
    solver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A result is there already, another run's result, and a truncated result."""
    simulated: list[str] = []
    real = run_processes.run_all

    def run_all(configs: list[VirtualRunConfig], *arguments: object) -> None:
        simulated.extend(f"{config.strategy} {config.n_workers}" for config in configs)
        real(configs, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(simulate, "run_all", run_all)
    out = tmp_path / "out"
    options = {"solver": solver, "step_ms": 20.0, "out": out, "seeds": "7", "workers": "1,2", "strategy": "downpour"}
    single, two = simulate.run_configs(parse_config(SimulateConfig, options), 20.0, {})
    out.mkdir()
    write_result(single.result, result("downpour", 1, 7, [3.0, 1.0, 0.7], figure="loss"))
    two.result.write_text("{")
    arguments = [f"--{name}={value}" for name, value in options.items() if name != "solver"]
    invoked = invoke("simulate", solver, *map(_option, arguments), "--json")
    assert invoked.exit_code == 0, invoked.output
    assert simulated == ["downpour 2"]
    report = json.loads(invoked.stdout)
    rows = [(row["strategy"], row["workers"], row["seed"]) for row in report["rows"]]
    assert rows == [("single_worker", 1, 7), ("downpour", 2, 7)]
    assert [point["clock"] for point in report["rows"][1]["curve"]] == [0, 10, 20]
    assert report["rows"][0]["accuracy"] == 0.7
    assert json.loads((out / "simulation.json").read_text()) == report
    assert sorted(out.iterdir()) == sorted(
        [single.result, two.result, out / "simulation.json", out / "simulation.html"]
    )
    # The same as a DAG's task: everything is there.
    (tmp_path / "config.json").write_text(parse_config(SimulateConfig, options).model_dump_json())
    (out / "simulation.json").unlink()
    caplog.set_level("INFO")
    stage.main(tmp_path / "config.json")
    assert simulated == ["downpour 2"]
    assert json.loads((out / "simulation.json").read_text()) == report
    assert "2 of 2 virtual runs are done" in caplog.messages
    assert any(line.startswith("downpour, 2 workers, tau ") for line in caplog.messages)


def _option(argument: str) -> str:
    name, value = argument.split("=", 1)
    return f"{name.replace('_', '-')}={value}"


def test_a_run_that_cannot_start_is_one_message(solver: Path, tmp_path: Path) -> None:
    solver.write_text(SOLVER.read_text())
    config = parse_config(SimulateConfig, {"solver": solver, "step_ms": 20, "out": tmp_path / "out", "workers": "2"})
    with pytest.raises(StageFailed, match=r"strategy easgd, 2 workers \(log: .*has no test net") as failure:
        run_simulation(config)
    assert failure.value.exit_code == 2


def test_auto_is_chosen_by_stragglers_and_network(solver: Path, tmp_path: Path) -> None:
    rows = [("a", name, 4, share, 0.5, speed) for name, share, speed in
            (("easgd", 0.0, 2.0), ("sync", 0.0, 3.0), ("easgd", 0.125, 2.0), ("sync", 0.125, 1.2))]  # fmt: skip
    names = []
    with measured_table(tmp_path, rows):
        for changes in ({}, {"stragglers": 0.25}, {"network": "100mbit,1ms"}):
            options = {"solver": solver, "strategy": "auto,easgd", "workers": "1,4", "step_ms": 20.0, **changes}
            config = parse_config(SimulateConfig, options)
            chosen = simulate.choices_of(config, 50_000, 0.02)
            runs = simulate.run_configs(config, 20.0, {count: strategy.name for count, strategy in chosen.items()})
            names.append([(run.n_workers, run.strategy) for run in runs])
    single = (1, "easgd")
    assert names == [[single, (4, "sync"), (4, "easgd")], [single, (4, "easgd")], [single, (4, "easgd")]]
