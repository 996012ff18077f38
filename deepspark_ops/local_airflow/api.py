"""Client of the local Airflow's REST API, for the generated administrator or another user."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caffe_import.files.regular_file import regular_text
from deepspark_ops.local_airflow.folders import HOST, USER
from deepspark_ops.processes.job_log import FAILED, StageFailed

_HEALTH_TIMEOUT_S = 5.0
_CALL_TIMEOUT_S = 30.0
_BUSY, _BUSY_TRIES, _BUSY_WAIT_S = '"Database error"', 5, 2.0
"""Airflow's answer while another process writes SQLite; idempotent requests are repeated."""


class AirflowFailed(StageFailed):
    """The local Airflow did not start, ended, or refused a call; a retry may succeed."""

    def __init__(self, message: str) -> None:
        """Keep the message for the user."""
        super().__init__(message, FAILED)


@dataclass
class Api:
    """The API of an Airflow on this machine.

    Attributes:
        port: Port of the API server.
        passwords: File with the generated passwords.
        user: Name of the user.
    """

    port: int
    passwords: Path
    user: str = USER
    _token: str = ""

    @property
    def password(self) -> str:
        """The user's password, which Airflow generated at its first start with that user."""
        return str(json.loads(regular_text(self.passwords))[self.user])

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON answer of a call below ``/api/v2``.

        Raises:
            AirflowFailed: The API refused the call; the message is the API's reason.
        """
        for _ in range(_BUSY_TRIES if method != "POST" else 0):
            try:
                return self._request(method, f"/api/v2{path}", body, self._login())
            except AirflowFailed as error:
                if _BUSY not in str(error):
                    raise
            time.sleep(_BUSY_WAIT_S)
        return self._request(method, f"/api/v2{path}", body, self._login())

    def page(self, path: str) -> Any:
        """Return the JSON form of a page, such as ``/deepspark/runs?format=json``.

        Raises:
            AirflowFailed: Airflow refused the page.
        """
        return self._request("GET", path, None, self._login())

    def _login(self) -> dict[str, str]:
        if not self._token:
            login = {"username": self.user, "password": self.password}
            self._token = str(self._request("POST", "/auth/token", login, {})["access_token"])
        return {"Authorization": f"Bearer {self._token}"}

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None, headers: dict[str, str]) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{HOST}:{self.port}{path}", data, method=method)
        request.headers.update({**headers, "Content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_CALL_TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            msg = f"{method} {path}: {error.code} {error.read().decode(errors='replace')}"
            raise AirflowFailed(msg) from error
        except OSError as error:
            msg = f"{method} {path}: {error}"
            raise AirflowFailed(msg) from error


def read_health(port: int) -> Mapping[str, str]:
    """Return the status of each part on Airflow's health page; empty while the API server does not answer."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/api/v2/monitor/health", timeout=_HEALTH_TIMEOUT_S) as answer:
            health = json.load(answer)
    except (OSError, ValueError):
        return {}
    return {part: str((state or {}).get("status")) for part, state in health.items()}


def quoted(run_id: str) -> str:
    """Return a run id as a part of a URL."""
    return urllib.parse.quote(run_id, safe="")
