"""Master and worker as compose.yaml starts both: a Spark job with authentication and encryption runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
SCRIPT = ROOT / ".ci" / "container.sh"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def service(role: str, environment: dict[str, str]) -> Iterator[None]:
    with subprocess.Popen(
        [SCRIPT, role], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield
        finally:
            process.kill()


def test_the_doctor_finds_the_services_fit(tmp_path: Path) -> None:
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "DATA": str(tmp_path), "SPARK_CONF_DIR": str(tmp_path / "spark-conf"),
        "SPARK_HOST": "127.0.0.1", "SPARK_PORT": str(port), "SPARK_UI_PORT": "0",
        "SPARK_MASTER": master, "SPARK_MEMORY": "2g",
    }  # fmt: skip
    subprocess.run([SCRIPT, "settings"], env=environment, check=True, timeout=60)
    with ExitStack() as running:
        running.enter_context(service("master", environment))
        running.enter_context(service("worker", environment))
        command = [sys.executable, "-m", "deepspark_ops.command.cli", "doctor", "--master", master, "--n-workers", "1"]
        completed = subprocess.run(
            [*command, "--home", str(tmp_path)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "0 failed, 0 warnings" in completed.stdout  # AES/CTR would be a warning
