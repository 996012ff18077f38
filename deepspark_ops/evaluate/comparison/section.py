"""The report's section on the candidate against production: figures, classes, and samples with different answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from deepspark_ops.evaluate.comparison.answers import ClassChange, Comparison, compare_evaluations
from deepspark_ops.evaluate.comparison.mistake_pictures import in_turns
from deepspark_ops.evaluate.comparison.paired import p_text
from deepspark_ops.evaluate.evaluation_folder import Evaluated
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport

REPORT_CONFIDENCE = 0.95
"""Of the section's interval; the decision has the one that was asked for."""
MAX_SHOWN_SAMPLES = 12
MAX_SHOWN_CLASSES = 12
_MARK = re.compile(r"<!-- decision -->.*?<!-- end of decision -->", re.DOTALL)


@dataclass(frozen=True)
class Difference:
    """A sample with one right answer, by the candidate or by production.

    Attributes:
        index: Position of the sample.
        label: True class.
        candidate: What the candidate takes it for.
        production: What production takes it for.
    """

    index: int
    label: int
    candidate: int
    production: int


@dataclass(frozen=True)
class ComparisonSection:
    """Content of the section.

    Attributes:
        comparison: By top-1; of another task than classification by the samples' own errors.
        production: Production's figures.
        gained: Samples that the candidate alone gets right, of different classes first.
        lost: Samples that production alone gets right, likewise.
    """

    comparison: Comparison
    production: MetricsReport
    gained: tuple[Difference, ...]
    lost: tuple[Difference, ...]

    def changed_classes(self) -> Sequence[ClassChange]:
        """Return the classes with the largest net change, at most ``MAX_SHOWN_CLASSES``."""
        return changed_classes(self.comparison)[:MAX_SHOWN_CLASSES]

    def shown_samples(self) -> tuple[int, ...]:
        """Return the positions of the samples to show as pictures."""
        return tuple(difference.index for difference in (*self.gained, *self.lost))


def make_section(
    candidate: Evaluated,
    production: Evaluated,
    known_content: npt.NDArray[np.uint64] | None,
    *,
    has_picture: Callable[[int], bool] = lambda index: True,
) -> ComparisonSection:
    """Compare two evaluations for the report.

    ``known_content`` is None if the samples on which production was promoted are not known. Only samples with
    ``has_picture`` are shown.

    Raises:
        DataError: They are of different samples, or of different tasks.
    """
    comparison = compare_evaluations(
        candidate, production, metric="top1", confidence=REPORT_CONFIDENCE, known_content=known_content
    )
    if comparison.figures is not None:
        return ComparisonSection(comparison, production.metrics, (), ())
    mine, production_answers = candidate.samples.classes(), production.samples.classes()
    gained = np.flatnonzero((mine.rank == 0) & (production_answers.rank != 0))
    lost = np.flatnonzero((mine.rank != 0) & (production_answers.rank == 0))
    columns = np.stack([mine.index, mine.label, mine.predicted, production_answers.predicted], axis=1)

    def shown(rows: npt.NDArray[np.int64]) -> tuple[Difference, ...]:
        pictured = [row for row in rows.tolist() if has_picture(int(mine.index[row]))]
        return tuple(Difference(*columns[row].tolist()) for row in in_turns(mine.label, pictured)[:MAX_SHOWN_SAMPLES])

    return ComparisonSection(comparison, production.metrics, shown(gained), shown(lost))


def changed_classes(comparison: Comparison) -> Sequence[ClassChange]:
    """Return the classes with gained or lost samples, largest net change first."""
    changed = [change for change in comparison.classes if change.n_gained or change.n_lost]
    changed.sort(key=lambda change: (-abs(change.n_gained - change.n_lost), -change.n_gained - change.n_lost))
    return changed


def with_decision(page: str, *, promotes: bool, reason: str) -> str:
    """Return the report with the decision in its section; without this section the page is returned unchanged.

    A repeated call replaces the decision.
    """
    style = "promoted" if promotes else "kept"
    text = f'<p class="decision {style}">{escape(reason[:1].upper() + reason[1:])}</p>'
    return _MARK.sub(lambda _: f"<!-- decision -->{text}<!-- end of decision -->", page)


def section_view(section: ComparisonSection, names: Sequence[str], pictures: Mapping[int, object]) -> dict[str, object]:
    """Return the values for the template; ``pictures``: position -> what shows a sample, others are left out."""
    comparison = section.comparison

    def shown(differences: Sequence[Difference]) -> list[dict[str, object]]:
        return [
            {
                "index": difference.index,
                "true": names[difference.label],
                "candidate": names[difference.candidate],
                "production": names[difference.production],
                "picture": pictures[difference.index],
            }
            for difference in differences
            if difference.index in pictures
        ]

    return {
        "comparison": comparison,
        "production": section.production,
        "rows": {row.name: row.text() for row in section.production.rows()},
        "p": p_text(comparison.p_value),
        "points": 100 * comparison.gain,
        "interval": _interval_text(comparison),
        "test": _test_text(comparison),
        "classes": section.changed_classes(),
        "gained": shown(section.gained),
        "lost": shown(section.lost),
    }


def _interval_text(comparison: Comparison) -> str:
    """Return the interval of the gain, in points or as an error."""
    if comparison.interval is None:
        return f"no interval: {comparison.n_groups} groups are too few"
    low, high = comparison.interval
    level = f"{100 * comparison.interval_level:.0f} % interval"
    if comparison.figures is not None:
        return f"{level} {low:.4g} to {high:.4g}"
    return f"{level} {100 * low:+.1f} to {100 * high:+.1f}"


def _test_text(comparison: Comparison) -> str:
    if comparison.n_groups is not None:
        return f"the answers to {comparison.n_groups:,} groups of samples exchanged, a group as a whole"
    return "McNemar's exact test" if comparison.figures is None else "paired bootstrap"
