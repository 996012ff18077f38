"""The setting of notifiers and their events: a JSON file. No Airflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.errors import ConfigError
from deepspark_ops.frozen_model import FrozenModel

SETTING: Final = "DEEPSPARK_NOTIFIERS"
"""Variable of the environment that names the file."""
Event = Literal["failed", "promoted", "kept", "approval"]
"""A task failed for good; a model went into production; production stayed; a run waits for a person."""
_EXAMPLE: Final = '[{"notifier": "my_company.notices.ChatNotifier", "arguments": {"conn_id": "chat"}}]'


class NotifierSetting(FrozenModel):
    """An entry of the file.

    Attributes:
        notifier: The class, with its module: ``airflow.providers.smtp.notifications.smtp.SmtpNotifier``.
        arguments: What it is made with; texts in its template fields are templates.
        events: What it is told of.
    """

    notifier: str = Field(pattern=r"^\w+(\.\w+)+$")
    arguments: dict[str, Any] = Field(default={})
    events: tuple[Event, ...] = ("failed", "promoted", "kept", "approval")


_FILE: Final = TypeAdapter(list[NotifierSetting])


def read_settings(environment: Mapping[str, str]) -> tuple[NotifierSetting, ...]:
    """Return the entries of the file in the environment; nothing without a file.

    Raises:
        ConfigError: The file is missing or wrong. The message has no value of it: one may be a secret.
    """
    name = environment.get(SETTING)
    if not name:
        return ()
    where = f"{SETTING}={name}"
    try:
        entries = json.loads(regular_text(Path(name)))
    except OSError as error:
        msg = f"{where}: {error.strerror or error}; it names a JSON file, e.g. {_EXAMPLE}"
        raise ConfigError(msg) from None
    except ValueError as error:
        position = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else "not a text"
        msg = f"{where}: no JSON ({position}); e.g. {_EXAMPLE}"
        raise ConfigError(msg) from None
    try:
        return tuple(_FILE.validate_python([entries] if isinstance(entries, dict) else entries))
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        position = ".".join(str(part) for part in first["loc"])
        allowed_fields = (
            f"; known: {', '.join(NotifierSetting.model_fields)}" if first["type"] == "extra_forbidden" else ""
        )
        finding = first["msg"]
        if first["type"] == "string_pattern_mismatch":
            finding = "must be a class with its module, as in a.module.AClass"
        msg = f"{where}: {position + ': ' if position else ''}{finding}{allowed_fields}; e.g. {_EXAMPLE}"
        raise ConfigError(msg) from None
