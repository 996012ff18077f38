"""The connection type ``deepspark``: the folders of an Airflow's runs, datasets and models, on the page Connections."""

from __future__ import annotations

import json
from typing import Any, Final

from airflow.sdk import BaseHook, Connection

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.places import PlacesConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.provider.airflow_names import AirflowNotFoundException

CONNECTION_TYPE: Final = "deepspark"
DEFAULT_CONNECTION: Final = "deepspark_default"


class DeepSparkHook(BaseHook):
    """Reads a connection of type ``deepspark``."""

    conn_name_attr = "deepspark_conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = CONNECTION_TYPE
    hook_name = "DeepSpark"

    def __init__(self, deepspark_conn_id: str = DEFAULT_CONNECTION) -> None:
        """Read the connection of this name."""
        super().__init__()
        self.deepspark_conn_id = deepspark_conn_id

    def get_conn(self) -> PlacesConfig:
        """Return the connection's fields.

        Raises:
            ConfigError: A field is wrong.
            AirflowNotFoundException: There is no such connection.
        """
        return places_config(Connection.get(self.deepspark_conn_id))

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the folders exist, for the button of Airflow's page."""
        try:
            config = self.get_conn()
        except ConfigError as error:
            return False, str(error)
        folders = [folder for folder in (config.home, config.models, *(config.allowed_roots or ())) if folder]
        missing = [str(folder) for folder in folders if not folder.is_dir()]
        return (False, f"no such folder: {', '.join(missing)}") if missing else (True, "all folders are there")


def default_places() -> PlacesConfig:
    """Return the fields of the connection ``deepspark_default``; nothing without the connection.

    Raises:
        ConfigError: A field is wrong.
    """
    try:
        return DeepSparkHook().get_conn()
    except AirflowNotFoundException:
        return parse_config(PlacesConfig, {})


def places_config(connection: Any) -> PlacesConfig:
    """Return the fields of a connection, the JSON text ``extra``.

    Raises:
        ConfigError: The connection has another type, or a field is wrong.
    """
    label = f"Airflow connection {connection.conn_id}"
    if connection.conn_type != CONNECTION_TYPE:
        msg = f"{label}: its type is {connection.conn_type}; it must be {CONNECTION_TYPE}"
        raise ConfigError(msg)
    try:
        return parse_config(PlacesConfig, _fields(connection.extra or "{}"))
    except ConfigError as error:
        msg = f"{label}: {error}"
        raise ConfigError(msg) from None


def _fields(extra: str) -> dict[str, Any]:
    try:
        values = json.loads(extra)
    except ValueError as error:
        msg = f"extra is no JSON: {error}"
        raise ConfigError(msg) from None
    if not isinstance(values, dict):
        msg = 'extra is no JSON object, e.g. {"home": "/data/deepspark"}'
        raise ConfigError(msg)
    return values
