"""The page "Samples" of a run: the evaluated samples one by one, filtered, sorted, with pictures. No framework.

With a second run, parameter ``with``, each row also has the answer of the second run's net.
"""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, get_args

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.comparison.comparable import why_not_compared
from deepspark_ops.evaluate.metrics import METRICS_NAME, classes_of, read_metrics
from deepspark_ops.evaluate.per_sample.row_reader import Outcome, RowOrder, RowQuery, SelectedRows
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport
from deepspark_ops.evaluate.tasks.regression import RegressionMetrics
from deepspark_ops.operators.pages.addresses import URL_PREFIX, evaluation_folder, find_run, run_url
from deepspark_ops.operators.pages.refused import Refused
from deepspark_ops.operators.pages.run.sample_bars import chart_of, drawn_bars
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_index.run_text import run_name

ANSWER_VERSION: Final = 1
ROWS_SHOWN: Final = 60
_ORDERS: Final[Mapping[RowOrder, str]] = {
    "-loss": "largest loss first",
    "loss": "smallest loss first",
    "-probability": "surest first",
    "probability": "least sure first",
    "-residual": "largest residual first",
    "residual": "smallest residual first",
    "-distance": "farthest pairs first",
    "distance": "nearest pairs first",
    "index": "as they were read",
    "-loss_difference": "larger loss of the other run first",
    "loss_difference": "smaller loss of the other run first",
}
_PROBABILITY_ORDERS: Final = ("-probability", "probability")
_RESIDUAL_ORDERS: Final = ("-residual", "residual")
_DISTANCE_ORDERS: Final = ("-distance", "distance")
_RANGES: Final = ("min_probability", "max_probability", "min_loss", "max_loss", "min_distance", "max_distance")
_RESIDUAL_RANGE: Final = ("min_residual", "max_residual")
_PAIR_ORDERS: Final = ("-loss_difference", "loss_difference")
_OUTCOMES: Final[Mapping[Outcome, str]] = {
    "this": "this run alone",
    "other": "the other run alone",
    "both": "both runs",
    "neither": "neither run",
}
_SMALLER_LOSS: Final = ("this", "other")
"""Outcomes without classes."""
_CLASSES: Final = ("label", "predicted", "other_predicted")
_SHARES: Final = ("probability", "label_probability", "other_probability", "other_label_probability")
_WORDS: Final[Mapping[str, str]] = {
    "label": "true class",
    "is_same": "alike",
    "label_probability": "probability of the true class",
    "other_label_probability": "other probability of the true class",
}
_HIDDEN: Final = ("content",)


@dataclass(frozen=True)
class _Evaluated:
    """A run's evaluation on disk."""

    dag: str
    run: str
    folder: Path
    metrics: MetricsReport


class SamplesPage:
    """The samples of every run's evaluation, from ``samples.parquet`` and the kept pictures of mistakes."""

    def __init__(self, installation: Places) -> None:
        """Look for runs in ``installation``."""
        self._installation = installation

    def answer(
        self, dag_id: str, run_id: str, parameters: Mapping[str, str], readable: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return one page of selected samples.

        Args:
            dag_id: Of the run.
            run_id: Of the run.
            parameters: Of the address: the conditions as of ``read_query``, ``page``, from 1, and ``with``: DAG/RUN of
                a second run.
            readable: The DAGs that the person may read.

        Raises:
            Refused: There is no evaluation, the two runs cannot be compared, or a parameter is none.
        """
        query = read_query(parameters)
        evaluated, other = self._evaluations(dag_id, run_id, parameters, readable)
        metrics = evaluated.metrics
        rows = _select(evaluated, query, other)
        outputs = _outputs(metrics) if "residual" in rows.columns else []
        if query.output and not outputs:
            message = f"output={query.output} is no output with residuals; the outputs of a regression count from 0"
            raise Refused(message, 400)
        n_pages = max(1, math.ceil(rows.n_rows / ROWS_SHOWN))
        page = min(_number(parameters.get("page") or "1", "page", int, low=1) or 1, n_pages)
        shown_rows = rows.rows((page - 1) * ROWS_SHOWN, ROWS_SHOWN)
        return {
            "format_version": ANSWER_VERSION,
            "dag": dag_id,
            "run": run_id,
            "run_name": run_name(evaluated.folder.parent),
            "with": None if other is None else {"dag": other.dag, "run": other.run},
            "other_name": None if other is None else run_name(other.folder.parent),
            "task": metrics.task,
            "classes": _class_names(metrics),
            "outputs": outputs,
            "chart": chart_of(metrics, query.output),
            "query": asdict(query),
            "columns": [column for column in rows.columns if column not in _HIDDEN],
            "n_samples": metrics.n_samples,
            "n_rows": rows.n_rows,
            "page": page,
            "n_pages": n_pages,
            "rows": shown_rows,
            "pictures": _pictures(evaluated, other, [row["index"] for row in shown_rows]),
        }

    def csv(self, dag_id: str, run_id: str, parameters: Mapping[str, str], readable: Collection[str] = ()) -> bytes:
        """Return all selected samples as CSV; arguments and errors as of ``answer``."""
        query = read_query(parameters)
        evaluated, other = self._evaluations(dag_id, run_id, parameters, readable)
        return _select(evaluated, query, other).csv()

    def page(self, answer: Mapping[str, Any], *, nonce: str, site: str = "") -> str:
        """Return the page of an answer, see ``answers.shown``."""
        here = site + run_url(answer["dag"], answer["run"], "samples")
        is_classification = answer["task"] == "classification"
        other = answer["with"]
        left_out = {
            *(() if is_classification else _PROBABILITY_ORDERS),
            *(() if answer["outputs"] else _RESIDUAL_ORDERS),
            *(() if "distance" in answer["columns"] else _DISTANCE_ORDERS),
            *(_PAIR_ORDERS if other is None else ()),
        }

        def address_of(**changes: Any) -> str:
            return f"{here}?{urllib.parse.urlencode(_parameters(answer, changes))}"

        return template("samples.html.jinja").render(
            title=f"Samples of {answer['run_name']}",
            samples=answer,
            is_classification=is_classification,
            orders={order: text for order, text in _ORDERS.items() if order not in left_out},
            outcomes={name: text for name, text in _OUTCOMES.items() if is_classification or name in _SMALLER_LOSS},
            swapped=None if other is None else site + _swapped_url(answer),
            class_columns=_CLASSES,
            shares=_SHARES,
            words=_WORDS,
            address=here,
            address_of=address_of,
            chart=drawn_bars(answer["chart"], answer["query"]["output"], address_of),
            pages={name: site + run_url(answer["dag"], answer["run"], name) for name in ("training", "report")},
            nonce=nonce,
            site=f"{site}{URL_PREFIX}",
            here="runs",
        )

    def _evaluations(
        self, dag_id: str, run_id: str, parameters: Mapping[str, str], readable: Collection[str]
    ) -> tuple[_Evaluated, _Evaluated | None]:
        evaluated = self._evaluated(dag_id, run_id, "this run")
        if not (key := parameters.get("with")):
            return evaluated, None
        other_dag, _, other_run = key.partition("/")
        subject = f'run "{key[:200]}"'
        if other_dag not in readable:  # the same words as for a run that does not exist
            raise Refused(_no_evaluation(subject), 404)
        other = self._evaluated(other_dag, other_run, subject)
        if why_not := why_not_compared(evaluated.metrics, other.metrics, (run_id, other_run)):
            message = f"not compared: {why_not}"
            raise Refused(message, 409)
        return evaluated, other

    def _evaluated(self, dag_id: str, run_id: str, subject: str) -> _Evaluated:
        run = find_run(self._installation, dag_id, run_id)
        folder = None if run is None else evaluation_folder(run)
        if folder is None or not (folder / METRICS_NAME).is_file():
            raise Refused(_no_evaluation(subject), 404)
        try:
            return _Evaluated(dag_id, run_id, folder, read_metrics(folder / METRICS_NAME))
        except DataError as error:
            raise Refused(str(error), 404) from None


def _no_evaluation(subject: str) -> str:
    return f"{subject} has no evaluation: its task evaluate has not written one, or it was removed"


def read_query(parameters: Mapping[str, str]) -> RowQuery:
    """Return the conditions in an address. Empty parameters are no conditions.

    Args:
        parameters: ``true``, ``predicted``, ``wrong`` (1, 0), ``same`` (1, 0), ``min_`` and ``max_`` of
            ``probability``, ``loss``, ``residual`` and ``distance``, ``output``, ``sort``; of two runs
            ``other_predicted`` and ``outcome``.

    Raises:
        Refused: A value is not allowed.
    """
    order = parameters.get("sort") or "-loss"
    if order not in get_args(RowOrder):
        message = f'sort="{order}" is no order; allowed: {", ".join(get_args(RowOrder))}'
        raise Refused(message, 400)
    outcome = parameters.get("outcome") or None
    if outcome not in (None, *get_args(Outcome)):
        message = f'outcome="{outcome}" is no outcome; allowed: {", ".join(get_args(Outcome))}'
        raise Refused(message, 400)
    if not parameters.get("with") and (outcome or parameters.get("other_predicted") or order in _PAIR_ORDERS):
        message = "outcome, other_predicted and loss_difference are of two runs; add with=DAG/RUN to the address"
        raise Refused(message, 400)

    def number(name: str, kind: Callable[[str], Any]) -> Any:
        return _number(parameters.get(name), name, kind)

    return RowQuery(
        label=number("true", int),
        predicted=number("predicted", int),
        is_wrong=_choice(parameters.get("wrong"), "wrong", ("mistakes alone", "right answers alone")),
        is_same=_choice(parameters.get("same"), "same", ("alike pairs alone", "other pairs alone")),
        **{name: number(name, float) for name in _RANGES},
        output=number("output", int) or 0,
        **{name: _signed_number(parameters.get(name), name) for name in _RESIDUAL_RANGE},
        other_predicted=number("other_predicted", int),
        outcome=outcome,  # type: ignore[arg-type] # checked above
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
        raise Refused(message, 400)
    return value


def _choice(text: str | None, name: str, words: tuple[str, str]) -> bool | None:
    if text not in (None, "", "0", "1"):
        message = f'{name}="{text[:40]}" is neither 1 ({words[0]}) nor 0 ({words[1]})'
        raise Refused(message, 400)
    return None if not text else text == "1"


def _signed_number(text: str | None, name: str) -> float | None:
    if not text:
        return None
    with suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    message = f'{name}="{text[:40]}" is not a number'
    raise Refused(message, 400)


def _select(evaluated: _Evaluated, query: RowQuery, other: _Evaluated | None) -> SelectedRows:
    second = None if other is None else (other.folder, other.metrics.scored.weights_digest)
    try:
        return SelectedRows(evaluated.folder, query, evaluated.metrics.scored.weights_digest, second)
    except DataError as error:
        raise Refused(str(error), 404) from None


def _class_names(metrics: MetricsReport) -> list[str] | None:
    classes = classes_of(metrics)
    return None if classes is None else [report.name for report in classes.classes]


def _outputs(metrics: MetricsReport) -> list[str]:
    """Return the names of the outputs of a regression; empty for another task."""
    return [output.name for output in metrics.figures.outputs] if isinstance(metrics, RegressionMetrics) else []


def _pictures(evaluated: _Evaluated, other: _Evaluated | None, indices: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return sample position -> its kept picture, of mistakes and large errors alone.

    A picture that the first evaluation lacks is from the second evaluation. Where the pictures differ, as with pictures
    of a net's output, ``other_source`` is the second picture.
    """
    # OpenCV and HDF5, which few pages need.
    from deepspark_ops.evaluate.comparison.mistake_pictures import open_mistake_pictures

    pictures: dict[int, dict[str, Any]] = {}
    for compared in (evaluated, *([] if other is None else [other])):
        archive = open_mistake_pictures(compared.folder, compared.metrics.scored)
        for index, picture in archive.read([index for index in indices if index in archive.numbers]).items():
            source = picture.data_uri()
            is_small = picture.media_type == "image/png"
            first = pictures.setdefault(index, {"source": source, "other_source": None, "is_small": is_small})
            if first["source"] != source:
                first["other_source"] = source
    return pictures


def _swapped_url(answer: Mapping[str, Any]) -> str:
    """Return the address of the same samples with the two runs exchanged."""
    query, other = answer["query"], answer["with"]
    parameters = {
        "with": f"{answer['dag']}/{answer['run']}",
        "true": query["label"],
        "predicted": query["other_predicted"],
        "other_predicted": query["predicted"],
        "output": query["output"] or None,
        "outcome": {"this": "other", "other": "this"}.get(query["outcome"], query["outcome"]),
    }
    shown_parameters = {name: value for name, value in parameters.items() if value is not None}
    return f"{run_url(other['dag'], other['run'], 'samples')}?{urllib.parse.urlencode(shown_parameters)}"


def _parameters(answer: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the answer's address with ``changes``; empty parameters are left out."""
    query, other = answer["query"], answer["with"]
    parameters = {
        "with": None if other is None else f"{other['dag']}/{other['run']}",
        "true": query["label"],
        "predicted": query["predicted"],
        "other_predicted": query["other_predicted"],
        "outcome": query["outcome"],
        "wrong": None if query["is_wrong"] is None else int(query["is_wrong"]),
        "same": None if query["is_same"] is None else int(query["is_same"]),
        **{name: query[name] for name in _RANGES},
        "output": query["output"] or None,
        **{name: query[name] for name in _RESIDUAL_RANGE},
        "sort": query["order"],
        **changes,
    }
    return {name: value for name, value in parameters.items() if value is not None}
