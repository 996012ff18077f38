"""Configuration of tracking from MLflow's environment variables, and the environment of the client's process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

TRACKING_URI: Final = "MLFLOW_TRACKING_URI"
"""The variable that turns tracking on."""
DEFAULT_EXPERIMENT: Final = "deepspark"
"""Experiment of the runs without ``MLFLOW_EXPERIMENT_NAME`` and ``MLFLOW_EXPERIMENT_ID``."""
_CLIENT_DEFAULTS: Final = {
    # MLflow's defaults are 120 s and 7 tries: a silent server would delay a task by a quarter of an hour.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the next stage of the run sends missing data
    "MLFLOW_DISABLE_TELEMETRY": "true",  # no usage reports, unless the user enables them
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_OF_A_SECRET = re.compile(r"(PASSWORD|PASSWD|TOKEN|SECRET|ACCESS_KEY|API_KEY)(_|$)")
_USER_OF_URI = re.compile(r"(?<=://)[^/\s'\"]*@")
_SHORTEST_SECRET: Final = 4
"""Shorter values are not redacted: they occur in many words."""


def is_configured(environment: Mapping[str, str]) -> bool:
    """Return whether the environment names a tracking server."""
    return bool(environment.get(TRACKING_URI, "").strip())


def client_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the additional variables of the client's process; variables in ``environment`` take precedence."""
    return {name: value for name, value in _CLIENT_DEFAULTS.items() if name not in environment}


def redacted(text: str, environment: Mapping[str, str]) -> str:
    """Return a text without the secrets of the environment: MLflow's messages repeat the URI.

    Example:
        >>> redacted("http://ada:pw@host:5000/api failed, token abcd", {"MLFLOW_TRACKING_TOKEN": "abcd"})
        'http://***@host:5000/api failed, token ***'
    """
    secrets = {
        value for name, value in environment.items() if _OF_A_SECRET.search(name) and len(value) >= _SHORTEST_SECRET
    }
    text = _USER_OF_URI.sub("***@", text)
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
