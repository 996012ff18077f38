"""Reads ``name: value`` text, on one line or many: what a strategy's options are written in."""

from __future__ import annotations

import re
from typing import NamedTuple

from deepspark_ops.errors import ConfigError

_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*:\s*(?P<value>[^\s#,;]+)[,;]?|(?P<other>\S+))")


class TextField(NamedTuple):
    """One ``name: value``: the value as written, and ``path:line`` for errors."""

    value: str
    where: str


def read_fields(text: str, path: str) -> dict[str, TextField]:
    """Return name -> field, in the order of the text. ``#`` begins a comment, commas and semicolons are blanks.

    Args:
        text: Any number of fields a line.
        path: Named in errors.

    Raises:
        ConfigError: Something else than fields, or one given twice; with the line.

    Example:
        >>> read_fields("decay_rate: 0.5, decay_step: 3", "options")["decay_step"]
        TextField(value='3', where='options:1')
    """
    found: dict[str, TextField] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{path}:{number}"
        for token in _TOKEN.finditer(line.split("#", 1)[0].rstrip()):
            if token["other"]:
                msg = f'{where}: "{token["other"]}" is not of the form "name: value"'
                raise ConfigError(msg)
            if token["name"] in found:
                msg = f'{where}: "{token["name"]}" is given twice'
                raise ConfigError(msg)
            found[token["name"]] = TextField(token["value"], where)
    return found
