"""Fields of ``metrics.json`` for every task: scored weights and data, the main figure, and the speed."""

from __future__ import annotations

from abc import abstractmethod
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, SerializeAsAny

from deepspark_ops.config.shared_options.task import TaskName
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.shards.manifest import SplitName, SplitRule
from deepspark_ops.sizes import share_text

METRICS_VERSION: Final = 3


class ScoredOn(FrozenModel):
    """Scored weights and data.

    Attributes:
        net: Name of the net.
        run: Name of the run's folder.
        iteration: Iteration of the scored snapshot; None for weights that are no snapshot.
        weights: File name of the weights.
        weights_digest: SHA-256 of that file, ``sha256:<hex>``.
        dataset: Folder of the dataset split, or the net's own source.
        dataset_digest: SHA-256 of the samples' manifest or source, ``sha256:<hex>``; equal digests, equal samples.
        split: ``train``, ``validation`` or ``test``.
        score_blob: Blob that holds the net's answers; of pairs two with a comma between them.
        split_rule: How these samples were told from those of the other split; None if it is not known.
        target_blob: Blob with what the answers should be; None in files before version 3.
    """

    net: str
    run: str
    iteration: int | None
    weights: str
    weights_digest: str
    dataset: str
    dataset_digest: str
    split: SplitName
    score_blob: str
    split_rule: SplitRule | None = None
    target_blob: str | None = None


class Speed(FrozenModel):
    """Speed of scoring, with data already in memory: comparable on the same machine and with the same batch size only.

    Attributes:
        images_per_s: Of the fastest of many forward passes.
        batch_size: Samples of a pass.
        machine: Host name, processors and device.
        slowest_images_per_s: Passes were timed in several stretches of time; of the stretch whose fastest pass was the
            slowest. None in files of earlier releases.
    """

    images_per_s: float
    batch_size: int
    machine: str
    slowest_images_per_s: float | None = None


class MainFigure(FrozenModel):
    """The main figure to judge a net of this task.

    Attributes:
        name: ``top1``, ``mean_average_precision``, ``rmse``, ``roc_auc``, ``mse`` or ``mean_iou``.
        label: Its name for people, ``Top-1 accuracy``.
        value: Its value.
        higher_is_better: Else lower is.
        is_share: Is it a share, shown in percent?
        interval: Its 95 % interval; None where it is not known.
    """

    name: str
    label: str
    value: float
    higher_is_better: bool
    is_share: bool
    interval: tuple[float, float] | None = None

    def text(self) -> str:
        """Return the value for people.

        Example:
            >>> MainFigure(name="rmse", label="RMSE", value=0.12345, higher_is_better=False, is_share=False).text()
            '0.1235'
        """
        return figure_text(self.value, is_share=self.is_share)

    def is_better_than(self, other: MainFigure) -> bool:
        """Return whether this value is better than another value of the same figure."""
        return self.value > other.value if self.higher_is_better else self.value < other.value


def share_figure(name: str, label: str, value: float, interval: tuple[float, float] | None = None) -> MainFigure:
    """Return a share to judge a net by: a larger share is better."""
    return MainFigure(name=name, label=label, value=value, higher_is_better=True, is_share=True, interval=interval)


def interval_text(figure: MainFigure, *, between: str = " to ") -> str:
    """Return the figure's interval for people, shares in percent without the sign; empty if the interval is unknown."""
    if figure.interval is None:
        return ""
    low, high = figure.interval
    return f"{100 * low:.1f}{between}{100 * high:.1f}" if figure.is_share else f"{low:.4g}{between}{high:.4g}"


class FigureRow(FrozenModel):
    """A figure in a table for people.

    Attributes:
        name: As in ``MainFigure.name``; the key in MLflow.
        label: For people.
        value: None where it is not defined for these samples.
        is_share: Is it a share, shown in percent?
    """

    name: str
    label: str
    value: float | None
    is_share: bool = False

    def text(self) -> str:
        """Return the value for people, a dash for none."""
        return "\u2013" if self.value is None else figure_text(self.value, is_share=self.is_share)


def share_rows(*figures: tuple[str, str, float | None]) -> tuple[FigureRow, ...]:
    """Return rows of shares from name, label and value of each."""
    return tuple(FigureRow(name=name, label=label, value=value, is_share=True) for name, label, value in figures)


class SliceReport(FrozenModel):
    """Figures of the samples with the same value of a property.

    Attributes:
        column: The property, ``class``, ``folder``, ``group``, ...
        value: Its value.
        n_samples: Samples with it that count.
        main: The figure to judge by, of these samples alone.
        rows: Their figures.
    """

    column: str
    value: str
    n_samples: int
    main: MainFigure
    rows: tuple[FigureRow, ...]


def figure_text(value: float, *, is_share: bool) -> str:
    """Return a figure's value with the significant digits.

    Example:
        >>> figure_text(0.98611, is_share=True), figure_text(12.3456, is_share=False)
        ('98.6 %', '12.35')
    """
    return share_text(value) if is_share else f"{value:.4g}"


def _read_others(reports: Any) -> Any:
    """Return further results as reports of the class for ``task``."""
    if not isinstance(reports, list | tuple):
        return reports
    return tuple(
        _FORMS[report["task"]].model_validate(report)
        if isinstance(report, dict) and report.get("task") in _FORMS
        else report
        for report in reports
    )


class MetricsReport(FrozenModel):
    """The head of the whole file; ``task`` discriminates the subclasses.

    Attributes:
        format_version: Version of this form. 1 has no ``speed`` and no ``split_rule``; 1 and 2 are of classifications
            and have no ``task``, ``main`` and ``others``; they are read as version 3.
        task: What the net is for.
        created: UTC, ISO 8601, whole seconds.
        scored: What was scored on what.
        main: The figure to judge by.
        n_samples: Samples that count.
        n_ignored: Samples with the net's ``ignore_label`` (segmentation: pixels).
        loss: Mean of the samples' own error, as ``samples.h5`` has it sample by sample; lower is better.
        speed: How fast the net scores; None if it was not measured.
        others: Further results of a net that has several, each with figures of its own.
        slices: Figures of the samples with each value of the properties that were asked for.
    """

    format_version: Literal[3] = METRICS_VERSION
    task: TaskName
    created: str
    scored: ScoredOn
    main: MainFigure
    n_samples: int
    n_ignored: int
    loss: float
    speed: Speed | None = None
    others: Annotated[tuple[SerializeAsAny[MetricsReport], ...], BeforeValidator(_read_others)] = ()
    slices: tuple[SliceReport, ...] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Note the class as the reader of the task's results."""
        super().__pydantic_init_subclass__(**kwargs)
        _FORMS[cls.model_fields["task"].default] = cls

    @abstractmethod
    def rows(self) -> tuple[FigureRow, ...]:
        """Return the figures for MLflow and for tables for people, the main figure first."""

    @property
    def kind(self) -> str:
        """The task in words."""
        return str(self.task).replace("_", " ")

    @property
    def counted(self) -> str:
        """The judged items, in the plural: ``samples``, ``labels``, ``pixels``, ``time steps``."""
        return "labels" if self.task == "multi_label" else "samples"

    def further_rows(self) -> tuple[FigureRow, ...]:
        """Return further figures for MLflow and the report, beside ``rows``."""
        return ()

    def results(self) -> tuple[MetricsReport, ...]:
        """Return this result and the others of the same net."""
        return (self, *self.others)

    def summary(self) -> str:
        """Return the figures in a line."""
        figures = " ".join(f"{row.name}={row.value:.4f}" for row in self.rows() if row.value is not None)
        further_figures = "".join(
            f" | {other.kind} {other.scored.score_blob}: {other.summary()}" for other in self.results()[1:]
        )
        return f"{figures} samples={self.n_samples}{further_figures}"

    def __repr__(self) -> str:
        """Return the figures; all fields are thousands of numbers."""
        return f"{type(self).__name__}({self.summary()})"

    def __str__(self) -> str:
        """Return the figures."""
        return repr(self)

    def to_json(self) -> str:
        """Return the file's text."""
        return self.model_dump_json(indent=1) + "\n"


_FORMS: dict[str, type[MetricsReport]] = {}
"""Task -> its class."""


def now_text() -> str:
    """Return the present time in the format of ``created``."""
    return datetime.now(UTC).isoformat(timespec="seconds")
