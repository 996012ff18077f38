"""Stage simulate of a comparison: trials with virtual workers, in place of trainings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.config.commands.simulate import SimulateConfig
from deepspark_ops.config.compare import CompareConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.form import config_from_params, form_schemas
from deepspark_ops.operators.provider.airflow_names import AirflowSkipException
from deepspark_ops.operators.tasks.process_stage import ProcessStageOperator
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.operators.tasks.stage_run import StageRun, ends_plainly
from deepspark_ops.operators.tasks.trial_run import TrialsArguments
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.simulation.simulate import PAGE_FILE, REPORT_FILE, check_strategies

_ONE_EACH = ("comm_periods", "base_lrs", "solvers")
"""Lists of a comparison that a simulation, whose page is by strategies and workers, takes one value of."""
_AS_TRAINED = ("solver", "weights", "strategy_options", "moving_rate", "rate_scale", "overlap", "named_files")
"""What virtual workers have in common with real ones."""


def simulates(values: Mapping[str, Any], places: Places) -> bool:
    """Return whether a comparison's form asks for virtual workers."""
    return config_from_params(CompareConfig, values, places.root).simulate


def simulation_of(values: Mapping[str, Any], run: StageRun, places: Places) -> SimulateConfig:
    """Return the simulation of a comparison's form.

    Args:
        values: Of the operator's arguments.
        run: The comparison's paths.
        places: Where runs live.

    Raises:
        ConfigError: A value is wrong, or a list has several values that a simulation takes one of.
    """
    compare = config_from_params(CompareConfig, values, places.root)
    for name in _ONE_EACH:
        if len(values_of_list := getattr(compare, name)) > 1:
            msg = f"{name} has {len(values_of_list)} values: a simulation compares strategies and workers; give one"
            raise ConfigError(msg)
    train = config_from_params(
        TrainConfig, values, places.root, run_dir=run.run_dir, dataset=run.dataset, named_files=places.named_files()
    )
    shared_values: dict[str, Any] = {name: getattr(train, name) for name in _AS_TRAINED}
    shared_values["comm_period"] = _only(compare.comm_periods, train.comm_period)
    shared_values["solver"] = _only(compare.solvers, train.solver)
    shared_values["overrides"] = train.overrides
    if compare.base_lrs:
        shared_values["overrides"] = f"{train.overrides}\nbase_lr: {compare.base_lrs[0]}".lstrip()
    config = config_from_params(
        SimulateConfig,
        {
            name: value
            for name, value in values.items()
            if name in form_schemas(SimulateConfig) and name not in shared_values
        },
        places.root,
        **shared_values,
        dataset=run.dataset,
        strategy=",".join(compare.strategies or (train.strategy,)),
        workers=",".join(map(str, compare.workers or (train.n_workers,))),
        target=compare.target_accuracy,
        out=run.run_dir / "simulation",
    )
    check_strategies(config)
    return config


def _only(values: tuple[Any, ...], else_: Any) -> Any:
    return values[0] if values else else_


class DeepSparkSimulateTrialsOperator(TrialsArguments, ProcessStageOperator):
    """Make a comparison's trials in a virtual cluster if the form asks for virtual workers; else skip.

    The output has the run's paths, ``report``, the page, ``table`` (simulation.json) and the table's ``digest``.
    """

    config_models = (CompareConfig, TrainConfig, SimulateConfig)
    not_arguments = frozenset({"out"})
    stage = "simulate"
    module = "deepspark_ops.simulation.stage"

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Simulate, or skip."""
        if not simulates(self.values(), self.places):
            msg = "simulate is off: the trials are trained"
            raise AirflowSkipException(msg)
        return super().execute(context)

    def stage_config(self, context: Any, run: StageRun) -> SimulateConfig:
        """Return the simulation of a run."""
        return simulation_of(self.values(), run, self.places)

    def result(self, run: StageRun, config: SimulateConfig) -> dict[str, str]:
        """Copy the page to the path of the run's report, and return the paths."""
        report = RunPaths(run.run_dir).evaluation / "report.html"
        report.parent.mkdir(parents=True, exist_ok=True)
        write_text_whole(report, regular_text(config.out / PAGE_FILE))
        table = config.out / REPORT_FILE
        return {"report": str(report), "table": str(table), "digest": file_digest(table)}
