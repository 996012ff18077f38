"""Filter of a list of runs as a text: ``accuracy>0.97 and workers=2 and net~lenet``. No framework, no files."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from deepspark_ops.errors import ConfigError

Check = Callable[[Mapping[str, Any]], bool]
"""Whether a row fits a condition."""
Kind = Literal["text", "number", "share", "words", "flag", "span", "day"]
OPERATORS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("=", "!=", "~", "!~"),
    "words": ("=", "!=", "~", "!~"),
    "flag": ("=", "!="),
    **dict.fromkeys(("number", "share", "span", "day"), ("=", "!=", ">", ">=", "<", "<=")),
}
"""Kind of a field -> allowed operators; ``~`` is *contains*."""
_EXAMPLES: Final = {"number": "1,500", "share": "0.97 or 97%", "span": "90, 90s, 15min or 2h", "day": "2026-11-26"}


@dataclass(frozen=True)
class FilterField:
    """A field of the filter.

    Attributes:
        key: Key of a row.
        kind: Kind of the values.
        label: Word for people.
    """

    key: str
    kind: Kind
    label: str


FIELDS: Final[Mapping[str, FilterField]] = {
    "name": FilterField("name", "text", "name"),
    "tag": FilterField("tags", "words", "tag"),
    "note": FilterField("note", "text", "note"),
    "run": FilterField("run", "text", "run id"),
    "dag": FilterField("dag", "text", "DAG"),
    "state": FilterField("state", "text", "state"),
    "outcome": FilterField("outcome", "text", "promoted, rejected"),
    "error": FilterField("error", "text", "error"),
    "work": FilterField("work", "text", "training, convert, clean ..."),
    "net": FilterField("net", "text", "net"),
    "solver": FilterField("solver", "text", "solver"),
    "dataset": FilterField("dataset", "text", "dataset"),
    "strategy": FilterField("strategy", "text", "strategy"),
    "workers": FilterField("n_workers", "number", "workers"),
    "tau": FilterField("tau", "number", "tau"),
    "clock": FilterField("clock", "number", "clock"),
    "max_iter": FilterField("max_iter", "number", "minibatches planned"),
    "accuracy": FilterField("accuracy", "share", "accuracy"),
    "figure": FilterField("figure", "number", "main figure of other tasks"),
    "loss": FilterField("loss", "number", "loss"),
    "images_per_s": FilterField("images_per_s", "number", "images/s"),
    "duration": FilterField("seconds", "span", "duration"),
    "when": FilterField("when", "day", "day of the trigger, UTC"),
    "who": FilterField("who", "text", "who"),
    "archived": FilterField("archived", "flag", "archived"),
}
"""Name in a filter -> field."""
_ALSO: Final = {"tags": "tag", "n_workers": "workers", "images/s": "images_per_s", "seconds": "duration", "user": "who"}
_CONDITION: Final = re.compile(
    r"""\s*(?P<field>[A-Za-z_][\w/]*)\s*(?P<sign><=|>=|!=|!~|==|=|<|>|~)\s*(?P<value>"[^"]*"|'[^']*'|[^\s"']+)\s*"""
)
_AND: Final = re.compile(r"(and\b|&&)\s*", re.IGNORECASE)
_SPAN: Final = re.compile(r"([\d.,]+)\s*(s|min|h|d|)")
_SECONDS: Final = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_COMPARES: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
}
_DAY_S: Final = 86400.0


@dataclass(frozen=True)
class Condition:
    """A condition of a filter.

    Attributes:
        field: Name of the field.
        sign: Operator.
        value: Text, number, or truth value to compare with, by the field's kind.
    """

    field: str
    sign: str
    value: str | float | bool

    def check(self) -> Check:
        """Return a check of rows; a missing value fits ``!=`` and ``!~`` alone.

        A list has 10,000 rows with few different values: the check compares each value once.
        """
        field, fits_by_value = FIELDS[self.field], dict[Any, bool]()
        key, kind = field.key, field.kind

        def fits(row: Mapping[str, Any]) -> bool:
            value = row[key]
            if isinstance(value, Mapping | list):  # a main figure, words
                return self._fits(value, kind)
            if value not in fits_by_value:
                fits_by_value[value] = self._fits(value, kind)
            return fits_by_value[value]

        return fits

    def _fits(self, row_value: Any, kind: Kind) -> bool:
        value, is_not, sign = _row_value(row_value, kind), self.sign.startswith("!"), self.sign.removeprefix("!")
        if value is None:
            return is_not
        if kind == "words":
            return any(_text_fits(word, sign, str(self.value)) for word in value) != is_not
        if kind == "text":
            return _text_fits(value, sign, str(self.value)) != is_not
        return _COMPARES[self.sign](value, self.value)


def parse_filter(text: str) -> list[Condition]:
    """Return the conditions of a filter, which a row must all fit.

    Raises:
        ConfigError: A line that names the place, the nearest known field or the allowed operators.

    Example:
        >>> [(one.field, one.sign, one.value) for one in parse_filter("accuracy>97% and workers=2 and net~lenet")]
        [('accuracy', '>', 0.97), ('workers', '=', 2.0), ('net', '~', 'lenet')]
        >>> parse_filter("acuracy>0.9")
        Traceback (most recent call last):
        deepspark_ops.errors.ConfigError: filter: there is no field "acuracy"; the nearest is accuracy
    """
    conditions: list[Condition] = []
    position = 0
    while text[position:].strip():
        if conditions:
            joint = _AND.match(text, position)
            if joint is None:
                msg = f'filter: "{_start(text, position)}" follows a condition: write "and" between two conditions'
                raise ConfigError(msg)
            position = joint.end()
        match = _CONDITION.match(text, position)
        if match is None:
            msg = (
                f'filter: "{_start(text, position)}" is no condition: write a field, an operator and a value,'
                " e.g. accuracy>0.97 and net~lenet"
            )
            raise ConfigError(msg)
        conditions.append(_condition(match["field"], match["sign"].replace("==", "="), match["value"]))
        position = match.end()
    return conditions


def _start(text: str, position: int) -> str:
    part = text[position:].strip()
    return part if len(part) <= 40 else f"{part[:37]}..."


def _condition(name: str, sign: str, value: str) -> Condition:
    field_name = _ALSO.get(name.lower(), name.lower())
    if field_name not in FIELDS:
        nearest = difflib.get_close_matches(field_name, [*FIELDS, *_ALSO], n=1, cutoff=0.5)
        hint = f"the nearest is {_ALSO.get(nearest[0], nearest[0])}" if nearest else f"known: {', '.join(FIELDS)}"
        msg = f'filter: there is no field "{name}"; {hint}'
        raise ConfigError(msg)
    kind = FIELDS[field_name].kind
    if sign not in OPERATORS[kind]:
        msg = f"filter: {name}{sign}{value}: the operators of {field_name} are {' '.join(OPERATORS[kind])}"
        raise ConfigError(msg)
    plain = value[1:-1] if value[:1] in "\"'" else value
    return Condition(field_name, sign, _parsed(plain, kind, f"{name}{sign}{value}"))


def _parsed(text: str, kind: Kind, condition: str) -> str | float | bool:
    if kind in ("text", "words"):
        return text.casefold()
    if kind == "flag":
        if text.casefold() in ("yes", "true", "no", "false"):
            return text.casefold() in ("yes", "true")
        msg = f"filter: {condition}: the value is yes or no"
        raise ConfigError(msg)
    try:
        return _number(text, kind)
    except ValueError:
        noun = "a day" if kind == "day" else "a number"
        msg = f"filter: {condition}: the value is {noun}, e.g. {_EXAMPLES[kind]}"
        raise ConfigError(msg) from None


def _number(text: str, kind: Kind) -> float:
    """Return the number of a text: a share as a part of 1, a span in seconds, a day as its first second.

    Raises:
        ValueError: The text is no number.
    """
    if kind == "day":
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    if kind == "span":
        match = _SPAN.fullmatch(text)
        if match is None:
            raise ValueError(text)
        return float(match[1].replace(",", "")) * _SECONDS[match[2]]
    percent = kind == "share" and text.endswith("%")
    number = float(text.removesuffix("%").replace(",", "")) if percent else float(text.replace(",", ""))
    return number / 100.0 if percent else number


def _row_value(value: Any, kind: Kind) -> Any:
    """Return a row's value in the form of a condition's; None for a missing value."""
    if value is None or kind in ("words", "flag"):
        return value
    if kind == "text":
        return str(value).casefold()
    if isinstance(value, Mapping):  # a main figure
        value = value["value"]
    if isinstance(value, str):  # tau is a number, "auto" or a schedule
        return float(value) if value.isdecimal() else None
    return float(value) // _DAY_S * _DAY_S if kind == "day" else float(value)


def _text_fits(value: str, sign: str, text: str) -> bool:
    return text in value.casefold() if sign == "~" else value.casefold() == text
