"""Output of a comparison's check stage for the following tasks: trials with paths and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from deepspark_ops.config.compare import Value
from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.provider.airflow_names import AirflowFailException
from deepspark_ops.operators.tasks.stage_arguments import StageArguments
from deepspark_ops.operators.tasks.stage_run import StageRun
from deepspark_ops.stores.store_path import data_path
from deepspark_ops.trials.plan import comparison_of, read_member
from deepspark_ops.trials.turn import Turn, begin_trial


@dataclass(frozen=True)
class TrialRun:
    """Input of a trial's tasks, as plain JSON values.

    Attributes:
        name: What the trial has of its own; Airflow shows it in the place of a number.
        run_dir: The trial's folder.
        dataset: The dataset of all trials; None trains on the net's own sources.
        values: What takes the place of the form's values.
    """

    name: str
    run_dir: str
    dataset: str | None
    values: Mapping[str, Value]

    def stage_run(self) -> StageRun:
        """Return the trial's paths."""
        return StageRun(Path(self.run_dir), None if self.dataset is None else data_path(self.dataset), production=None)

    @property
    def comparison(self) -> Path:
        """The comparison's folder.

        Raises:
            ConfigError: The trial's folder does not name the comparison.
        """
        member = read_member(Path(self.run_dir))
        if member is None:
            msg = f"{self.run_dir}: the folder names no comparison; clear the task check together with this one"
            raise ConfigError(msg)
        return Path(member.comparison)

    def begin(self, max_iter_of: Callable[[Mapping[str, Value]], int]) -> Turn:
        """Return the trial with its values, and the accuracies to reach; see ``begin_trial``."""
        comparison_and_number = comparison_of(Path(self.run_dir).name)
        assert comparison_and_number is not None, "check names the trials' folders"
        return begin_trial(self.comparison, comparison_and_number[1], max_iter_of)


class ComparisonArguments(StageArguments):
    """Part of an operator of a comparison as a whole, whose folder is the folder of the DAG run."""

    takes_run = False

    def run_dir(self, context: Any) -> Path:
        """Return the comparison's folder."""
        return self.places.run_folder(context["dag_run"].dag_id, context["dag_run"].run_id)


class TrialArguments(StageArguments):
    """Part of an operator of a trial, whose folder is the trial's."""

    takes_run = False

    def __init__(self, *, trial: Mapping[str, Any], **kwargs: Any) -> None:
        """Keep the trial, an entry of the output of ``DeepSparkCheckTrialsOperator``."""
        super().__init__(**kwargs)
        self.trial = trial

    def run_dir(self, context: Any) -> Path:
        """Return the trial's folder."""
        return Path(self.trial["run_dir"])

    def stage_run(self, context: Any) -> StageRun:
        """Return the trial's paths."""
        return TrialRun(**self.trial).stage_run()


class TrialsArguments(ComparisonArguments):
    """Part of an operator that takes the trials of a comparison, the output of ``DeepSparkCheckTrialsOperator``."""

    more_templates: ClassVar[tuple[str, ...]] = ("trials",)

    def __init__(self, *, trials: Any, **kwargs: Any) -> None:
        """Keep the trials."""
        super().__init__(**kwargs)
        self.trials = trials

    def stage_run(self, context: Any) -> StageRun:
        """Return the comparison's folder, and the check stage's dataset for all trials.

        Raises:
            AirflowFailException: The check stage has left no trials.
        """
        if not self.trials:
            msg = f"trials={self.trials!r}: must be the output of DeepSparkCheckTrialsOperator; clear both tasks"
            raise AirflowFailException(msg)
        return StageRun(self.run_dir(context), TrialRun(**self.trials[0]).stage_run().dataset, production=None)
