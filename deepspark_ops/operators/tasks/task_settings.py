"""The Airflow Variable ``deepspark_defaults``: settings for the tasks of our DAGs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from airflow.sdk import Variable

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.shared_options.durations import length_of
from deepspark_ops.config.task_settings import SparkTaskConfig, TaskSettings
from deepspark_ops.errors import ConfigError

VARIABLE: Final = "deepspark_defaults"


@dataclass(frozen=True)
class DagSettings:
    """Settings of a DAG from the Variable."""

    settings: TaskSettings

    @classmethod
    def read(cls) -> DagSettings:
        """Return the settings of the Variable at the reading of a DAG file; the defaults without the Variable.

        Raises:
            ConfigError: It is no JSON, or a key or value is wrong. Airflow shows the message as the DAG's import error.
        """
        text = Variable.get(VARIABLE, default=None)
        if text is None or not str(text).strip():
            return cls(parse_config(TaskSettings, {}))
        try:
            values = json.loads(text)
        except ValueError as error:
            msg = f"Airflow Variable {VARIABLE}: no JSON: {error}"
            raise ConfigError(msg) from None
        if not isinstance(values, dict):
            msg = f'Airflow Variable {VARIABLE}: must be a JSON object, like {{"pool": "gpu", "executor_memory": "8g"}}'
            raise ConfigError(msg)
        try:
            return cls(parse_config(TaskSettings, values))
        except ConfigError as error:
            msg = f"Airflow Variable {VARIABLE}: {error}"
            raise ConfigError(msg) from None

    @property
    def form_defaults(self) -> dict[str, Any]:
        """First values of a form's Spark part."""
        return self.settings.model_dump(mode="json", include=set(SparkTaskConfig.model_fields))

    @property
    def connections(self) -> list[str]:
        """The Spark connections of a form: a person who may trigger a DAG cannot name another connection."""
        return list(dict.fromkeys([self.settings.conn_id, *self.settings.connections]))

    @property
    def default_args(self) -> dict[str, Any]:
        """Entries for a DAG's ``default_args``."""
        settings = self.settings
        named: dict[str, Any] = {"pool": settings.pool, "queue": settings.queue, "conf": dict(settings.conf) or None}
        named["store_conn_id"] = settings.store_conn_id
        if settings.execution_timeout is not None:
            named["execution_timeout"] = length_of(settings.execution_timeout)
        return {name: value for name, value in named.items() if value is not None}
