"""What a comparison's check stage has left for the tasks that follow it: its trials, their paths and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.operators.tasks.stage_run import StageRun, result_of_check
from deepspark_ops.trials.plan import Value, form_values


@dataclass(frozen=True)
class TrialRun:
    """What a trial's tasks are given, as plain JSON values.

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
        return StageRun(Path(self.run_dir), None if self.dataset is None else Path(self.dataset), production=None)

    def context(self, context: Any) -> dict[str, Any]:
        """Return a task's context with the trial's values among the run's."""
        return {**context, "params": form_values(self.values, context["params"])}


def checked_trials(context: Any) -> list[dict[str, Any]]:
    """Return the trials of a run, each as the fields of a ``TrialRun``.

    Raises:
        AirflowFailException: The check stage has not run.
    """
    return list(result_of_check(context))


def comparison_run(context: Any, places: Places) -> StageRun:
    """Return a comparison's folder, and the dataset that its check stage chose for all trials.

    Raises:
        AirflowFailException: The check stage has not run.
    """
    run, dataset = context["dag_run"], TrialRun(**checked_trials(context)[0]).stage_run().dataset
    return StageRun(places.run_folder(run.dag_id, run.run_id), dataset, production=None)
