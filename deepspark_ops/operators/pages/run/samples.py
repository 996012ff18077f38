"""The page "Samples" of a run: the evaluated samples one by one, filtered, sorted, with pictures. No framework."""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, get_args

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.metrics import METRICS_NAME, classes_of, read_metrics
from deepspark_ops.evaluate.per_sample.row_reader import RowOrder, RowQuery, SelectedRows
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport
from deepspark_ops.operators.pages.addresses import URL_PREFIX, evaluation_folder, find_run, run_url
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.tasks.run_plan import Places

ANSWER_VERSION: Final = 1
ROWS_SHOWN: Final = 60
_ORDERS: Final[Mapping[RowOrder, str]] = {
    "-loss": "largest loss first",
    "loss": "smallest loss first",
    "-probability": "surest first",
    "probability": "least sure first",
    "index": "as they were read",
}
_PROBABILITY_ORDERS: Final = ("-probability", "probability")
_SHARES: Final = ("probability", "label_probability")
_WORDS: Final[Mapping[str, str]] = {"label": "true class", "label_probability": "probability of the true class"}
_HIDDEN: Final = ("content",)


class NoSamples(Exception):
    """The samples cannot be shown; ``status`` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        """Keep both."""
        super().__init__(message)
        self.status = status


class SamplesPage:
    """The samples of every run's evaluation, from ``samples.parquet`` and the kept pictures of mistakes."""

    def __init__(self, installation: Places) -> None:
        """Look for runs in ``installation``."""
        self._installation = installation

    def answer(self, dag_id: str, run_id: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Return one page of selected samples.

        Args:
            dag_id: Of the run.
            run_id: Of the run.
            parameters: Of the address: the conditions as of ``read_query``, and ``page``, from 1.

        Raises:
            NoSamples: There is no evaluation, or a parameter is none.
        """
        folder, metrics, query = self._read(dag_id, run_id, parameters)
        rows = _select(folder, metrics, query)
        n_pages = max(1, math.ceil(rows.n_rows / ROWS_SHOWN))
        page = min(_number(parameters.get("page") or "1", "page", int, low=1) or 1, n_pages)
        shown_rows = rows.rows((page - 1) * ROWS_SHOWN, ROWS_SHOWN)
        return {
            "format_version": ANSWER_VERSION,
            "dag": dag_id,
            "run": run_id,
            "task": metrics.task,
            "classes": _class_names(metrics),
            "query": asdict(query),
            "columns": [column for column in rows.columns if column not in _HIDDEN],
            "n_samples": metrics.n_samples,
            "n_rows": rows.n_rows,
            "page": page,
            "n_pages": n_pages,
            "rows": shown_rows,
            "pictures": _pictures(folder, metrics, [row["index"] for row in shown_rows]),
        }

    def csv(self, dag_id: str, run_id: str, parameters: Mapping[str, str]) -> bytes:
        """Return all selected samples as CSV; arguments and errors as of ``answer``."""
        return _select(*self._read(dag_id, run_id, parameters)).csv()

    def page(self, answer: Mapping[str, Any], *, nonce: str, site: str = "") -> str:
        """Return the page of an answer.

        Args:
            answer: Of ``answer``.
            nonce: Of the page's scripts and styles.
            site: Path that Airflow is served under, without a slash at its end.
        """
        here = site + run_url(answer["dag"], answer["run"], "samples")
        is_classification = answer["task"] == "classification"
        orders = {
            order: text for order, text in _ORDERS.items() if is_classification or order not in _PROBABILITY_ORDERS
        }
        return template("samples.html.jinja").render(
            title=f"Samples of {answer['run']}",
            samples=answer,
            is_classification=is_classification,
            orders=orders,
            shares=_SHARES,
            words=_WORDS,
            address=here,
            address_of=lambda **changes: f"{here}?{urllib.parse.urlencode(_parameters(answer, changes))}",
            pages={name: site + run_url(answer["dag"], answer["run"], name) for name in ("training", "report")},
            nonce=nonce,
            site=f"{site}{URL_PREFIX}",
            here="runs",
        )

    def _read(self, dag_id: str, run_id: str, parameters: Mapping[str, str]) -> tuple[Any, MetricsReport, RowQuery]:
        run = find_run(self._installation, dag_id, run_id)
        folder = None if run is None else evaluation_folder(run)
        if folder is None or not (folder / METRICS_NAME).is_file():
            message = "this run has no evaluation: its task evaluate has not written one, or it was removed"
            raise NoSamples(message, 404)
        try:
            return folder, read_metrics(folder / METRICS_NAME), read_query(parameters)
        except DataError as error:
            raise NoSamples(str(error), 404) from None


def read_query(parameters: Mapping[str, str]) -> RowQuery:
    """Return the conditions in an address. Empty parameters are no conditions.

    Args:
        parameters: ``true``, ``predicted``, ``wrong`` (1, 0), ``min_`` and ``max_`` of ``probability`` and ``loss``,
            ``sort``.

    Raises:
        NoSamples: A value is not allowed.
    """
    order = parameters.get("sort") or "-loss"
    if order not in get_args(RowOrder):
        message = f'sort="{order}" is no order; allowed: {", ".join(get_args(RowOrder))}'
        raise NoSamples(message, 400)
    wrong = parameters.get("wrong") or None
    if wrong not in (None, "0", "1"):
        message = f'wrong="{wrong}" is neither 1 (mistakes alone) nor 0 (right answers alone)'
        raise NoSamples(message, 400)

    def number(name: str, kind: Callable[[str], Any]) -> Any:
        return _number(parameters.get(name), name, kind)

    return RowQuery(
        label=number("true", int),
        predicted=number("predicted", int),
        is_wrong=None if wrong is None else wrong == "1",
        **{name: number(name, float) for name in ("min_probability", "max_probability", "min_loss", "max_loss")},
        order=order,  # type: ignore[arg-type] # checked above
    )


def _number(text: str | None, name: str, kind: Callable[[str], Any], *, low: int = 0) -> Any:
    if not text:
        return None
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not low <= value <= 2**31 - 1:  # NaN neither
        message = f'{name}="{text[:40]}" is not a {"whole " if kind is int else ""}number from {low} to 2147483647'
        raise NoSamples(message, 400)
    return value


def _select(folder: Any, metrics: MetricsReport, query: RowQuery) -> SelectedRows:
    try:
        return SelectedRows(folder, query, metrics.scored.weights_digest)
    except DataError as error:
        raise NoSamples(str(error), 404) from None


def _class_names(metrics: MetricsReport) -> list[str] | None:
    classes = classes_of(metrics)
    return None if classes is None else [report.name for report in classes.classes]


def _pictures(folder: Any, metrics: MetricsReport, indices: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return sample position -> its kept picture, of mistakes and large errors alone."""
    # OpenCV and HDF5, which few pages need.
    from deepspark_ops.evaluate.comparison.mistake_pictures import open_mistake_pictures

    archive = open_mistake_pictures(folder, metrics.scored)
    pictures = archive.read([index for index in indices if index in archive.numbers])
    return {
        index: {"source": picture.data_uri(), "is_small": picture.media_type == "image/png"}
        for index, picture in pictures.items()
    }


def _parameters(answer: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the answer's address with ``changes``; empty parameters are left out."""
    query = answer["query"]
    parameters = {
        "true": query["label"],
        "predicted": query["predicted"],
        "wrong": None if query["is_wrong"] is None else int(query["is_wrong"]),
        **{name: query[name] for name in ("min_probability", "max_probability", "min_loss", "max_loss")},
        "sort": query["order"],
        **changes,
    }
    return {name: value for name, value in parameters.items() if value is not None}
