"""Table of the trials of a comparison: a row per trial, from the trial's folder; as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from deepspark_ops.config.compare import Value
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.metrics import METRICS_NAME, classes_of, read_metrics
from deepspark_ops.evaluate.tasks.metrics_head import MainFigure, MetricsReport
from deepspark_ops.events import read_events
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.stage_status import read_statuses
from deepspark_ops.sizes import share_text, size_text
from deepspark_ops.trials.course import Course, read_course, time_to
from deepspark_ops.trials.plan import Plan, Trial
from deepspark_ops.trials.standing import Standing, standing_of

TABLE_VERSION: Final = 4
TABLE_NAME: Final = "comparison.json"
CSV_NAME: Final = "comparison.csv"


class Row(FrozenModel):
    """Row of a trial.

    Attributes:
        number: From 1.
        name: Varied values of the trial.
        run: Run id of the trial.
        run_dir: Folder of the trial.
        values: Options with a list or a range, and solver fields.
        same_runs: Names of the other combinations of the lists that are the same training.
        status: ``finished`` or ``failed``.
        reason: Error message of a failed trial, whole.
        accuracy: Accuracy of the evaluation; None without an evaluation.
        accuracy_interval: 95 % interval of the accuracy.
        loss: Mean loss of the evaluation.
        figure: Main figure of a task other than classification; None for classifications.
        last_test_accuracy: Accuracy of the last test during training; None without tests.
        seconds_to_target: Training time until the target; None if the target was not reached.
        clock_to_target: Minibatches over all workers until the target.
        seconds: Training time.
        images_per_s: Rate of the whole training.
        exchanges: Exchanges of all workers.
        moved_bytes: Bytes of pushed and pulled parameters.
        early_stop: Reason of an early stop; empty for a whole training.
        stopped_at: Clock of an early stop.
    """

    number: int
    name: str
    run: str
    run_dir: str
    values: dict[str, Value]
    same_runs: tuple[str, ...] = ()
    status: Literal["finished", "failed"]
    reason: str
    accuracy: float | None
    accuracy_interval: tuple[float, float] | None
    loss: float | None
    figure: MainFigure | None = None
    last_test_accuracy: float | None
    seconds_to_target: float | None
    clock_to_target: int | None
    seconds: float | None
    images_per_s: float | None
    exchanges: int | None
    moved_bytes: int | None
    early_stop: str = ""
    stopped_at: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the trial finished, and did not stop early."""
        return self.status == "finished" and not self.early_stop


class Table(FrozenModel):
    """A whole comparison.

    Attributes:
        format_version: Version of this form.
        created: UTC, ISO 8601, whole seconds.
        dag: Id of the DAG.
        run: Id of the run.
        target_accuracy: Target of ``seconds_to_target``; None if no trial was tested during training.
        target_is_given: Whether the user requested the target; else it is the lowest last accuracy of the trials.
        rows: By number.
    """

    format_version: Literal[4] = TABLE_VERSION
    created: str
    dag: str
    run: str
    target_accuracy: float | None
    target_is_given: bool
    rows: tuple[Row, ...]

    def to_json(self) -> str:
        """Return the file's text."""
        return self.model_dump_json(indent=1) + "\n"

    def lines(self) -> list[str]:
        """Return the rows for a log, a line per trial, except for the reason of a failure."""
        lines = []
        for row in self.rows:
            if row.same_runs:
                lines.append(f"{row.name}: the same run: {'; '.join(row.same_runs)}")
            stopped = f" (stopped early: {row.early_stop})" if row.early_stop else ""
            outcome = f"failed: {row.reason}" if row.status == "failed" else ", ".join(self._figures(row))
            lines.append(f"{row.name}{stopped}: {outcome}")
        return lines

    def _figures(self, row: Row) -> Iterator[str]:
        """Yield the figures of a trial for a log, except for figures that the trial lacks."""
        if row.figure is not None:
            yield f"{row.figure.label} {row.figure.text()}"
        elif row.accuracy is not None:
            yield f"accuracy {share_text(row.accuracy)}"
        if self.target_accuracy is not None:
            reached = "not reached" if row.seconds_to_target is None else f"after {row.seconds_to_target:.2f} s"
            yield f"{share_text(self.target_accuracy)} {reached}"
        if row.images_per_s is not None:
            yield f"{row.images_per_s:,.0f} images/s"
        if row.moved_bytes is not None:
            yield f"{size_text(row.moved_bytes)} pushed and pulled"

    def to_csv(self) -> str:
        """Return a line per trial below a line of names; missing values are empty."""
        columns = [name for name in Row.model_fields if name not in ("values", "accuracy_interval", "figure")]
        figures = list(dict.fromkeys(row.figure.name for row in self.rows if row.figure is not None))
        varied = list(dict.fromkeys(name for row in self.rows for name in row.values))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*columns, *figures, *varied])
        for row in self.rows:
            values: list[Any] = [getattr(row, name) for name in columns]
            values[columns.index("same_runs")] = "; ".join(row.same_runs)
            values += [row.figure.value if row.figure and row.figure.name == name else None for name in figures]
            values += [row.values.get(name) for name in varied]
            writer.writerow(["" if value is None else safe_cell(value) for value in values])
        return text.getvalue()


def safe_cell(value: Any) -> Any:
    """Return a cell, never interpreted as a formula by spreadsheets."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" and value else value


def make_table(plan: Plan, courses: Mapping[int, Course]) -> Table:
    """Return the table of a comparison whose trials have all ended.

    Args:
        plan: Trials of the comparison.
        courses: Course of each trial, by number.
    """
    standings = {trial.number: standing_of(read_statuses(Path(trial.run_dir)), is_over=True) for trial in plan.trials}
    finished = [courses[number] for number, standing in standings.items() if standing.word == "finished"]
    complete_courses = [course for course in finished if not course.early_stop]
    last = [course.last_accuracy for course in complete_courses if course.last_accuracy is not None]
    target = plan.target_accuracy if plan.target_accuracy is not None else min(last, default=None)
    return Table(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        dag=plan.dag,
        run=plan.run,
        target_accuracy=target,
        target_is_given=plan.target_accuracy is not None,
        rows=tuple(_row(trial, courses[trial.number], standings[trial.number], target) for trial in plan.trials),
    )


def read_courses(trials: Sequence[Trial]) -> dict[int, Course]:
    """Return how each trial's training went, by number."""
    return {trial.number: read_course(read_events(RunPaths(Path(trial.run_dir)).events)) for trial in trials}


def _row(trial: Trial, course: Course, standing: Standing, target: float | None) -> Row:
    metrics = _metrics(Path(trial.run_dir)) if standing.word == "finished" else None
    classes = classes_of(metrics)
    reached = time_to(course.tests, target) if target is not None else None
    return Row(
        **trial.model_dump(),
        status="finished" if standing.word == "finished" else "failed",
        reason=standing.reason,
        accuracy=None if classes is None else classes.top1,
        accuracy_interval=None if classes is None else classes.top1_interval,
        loss=None if metrics is None else metrics.loss,
        figure=None if metrics is None or classes is not None else metrics.main,
        last_test_accuracy=course.last_accuracy,
        seconds_to_target=None if reached is None else round(reached.seconds, 3),
        clock_to_target=None if reached is None else reached.clock,
        seconds=round(course.seconds, 3) or None,
        images_per_s=course.images_per_s,
        exchanges=course.exchanges,
        moved_bytes=course.moved_bytes,
        early_stop=course.early_stop,
        stopped_at=course.stopped_at,
    )


def _metrics(run_dir: Path) -> MetricsReport | None:
    with suppress(OSError, DataError):
        return read_metrics(RunPaths(run_dir).evaluation / METRICS_NAME)
    return None
