"""A real S3 server on this host: moto's, from the environment that ``make test-object-stores`` brings."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest

from deepspark_ops.stores import arrow_store
from deepspark_ops.stores.store_path import data_path
from tests.paths import ROOT
from tests.processes import http_server

SERVER = Path(os.environ.get("DEEPSPARK_MOTO_ENVIRONMENT", ROOT / ".venv" / "moto")) / "bin" / "moto_server"
SECRET = "not-to-be-seen-anywhere"


@contextmanager
def s3_variables(folder: Path) -> Iterator[dict[str, str]]:
    """Run a server with an empty bucket, ``bucket``; yield the variables of a host that may use the server.

    This process has the variables, too, while the block lasts.
    """
    if not SERVER.exists():
        pytest.fail(f"{SERVER} is missing: make test-object-stores brings it")

    def command(port: int) -> list[object]:
        return [SERVER, "-H", "127.0.0.1", "-p", str(port)]

    with (
        http_server(command, log=folder / "log", answers_at="/moto-api/", server_name="moto's server") as url,
        pytest.MonkeyPatch.context() as patch,
    ):
        variables = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        for name, value in variables.items():
            patch.setenv(name, value)
        arrow_store._filesystem.cache_clear()
        request = urllib.request.Request(f"{url}/bucket", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
        yield variables
        arrow_store._filesystem.cache_clear()


@contextmanager
def reached_by_connection(variables: dict[str, str]) -> Iterator[None]:
    """Let Airflow's tasks reach the server by the connection aws_default alone, while the block lasts."""
    extra = {"endpoint_url": variables["AWS_ENDPOINT_URL"], "region_name": variables["AWS_DEFAULT_REGION"]}
    connection = {
        "conn_type": "aws", "login": variables["AWS_ACCESS_KEY_ID"], "password": variables["AWS_SECRET_ACCESS_KEY"],
        "extra": json.dumps(extra),
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
        for name in variables:
            patch.delenv(name)
        yield


def photos() -> dict[str, bytes]:
    """Return 60 dark cats and bright dogs, PNG files of 16x16 by name."""
    rng = np.random.default_rng(0)
    files = {}
    for i in range(60):
        pixels = np.clip(rng.normal(60 if i % 2 else 180, 20, (16, 16, 3)), 0, 255).astype(np.uint8)
        files[f"{'cat' if i % 2 else 'dog'}/{i}.png"] = cv2.imencode(".png", pixels)[1].tobytes()
    return files


def put(name: str, content: bytes, folder: Path) -> None:
    """Write an object into the bucket; ``folder`` takes a copy for the moment."""
    local = folder / "content"
    local.write_bytes(content)
    data_path(f"s3://bucket/{name}").put(local)
