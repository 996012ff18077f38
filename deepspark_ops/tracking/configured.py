"""Whether there is an MLflow to tell, and what environment its client gets: MLflow's own variables say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

TRACKING_URI: Final = "MLFLOW_TRACKING_URI"
"""The variable that turns tracking on."""
DEFAULT_EXPERIMENT: Final = "deepspark"
"""Where runs go unless ``MLFLOW_EXPERIMENT_NAME`` or ``MLFLOW_EXPERIMENT_ID`` says otherwise."""
_CLIENT_DEFAULTS: Final = {
    # MLflow's own are 120 s and 7 tries: a server that is silent would hold a task up for a quarter of an hour.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the next stage of the run tells everything that is missing
    "MLFLOW_DISABLE_TELEMETRY": "true",  # of use is reported to nobody unless whoever runs this says so
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_OF_A_SECRET = re.compile(r"(PASSWORD|PASSWD|TOKEN|SECRET|ACCESS_KEY|API_KEY)(_|$)")
_USER_OF_URI = re.compile(r"(?<=://)[^/\s'\"]*@")
_SHORTEST_SECRET: Final = 4
"""A shorter value is not looked for: it would be found in half the words."""


def is_configured(environment: Mapping[str, str]) -> bool:
    """Return whether the environment names a tracking server."""
    return bool(environment.get(TRACKING_URI, "").strip())


def client_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the client's process gets beside ``environment``, whose own settings stay."""
    return {name: value for name, value in _CLIENT_DEFAULTS.items() if name not in environment}


def redacted(text: str, environment: Mapping[str, str]) -> str:
    """Return a text without the secrets that the environment holds: MLflow's messages repeat the URI as it is.

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
