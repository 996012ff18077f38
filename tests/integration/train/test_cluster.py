"""Training on a standalone cluster: what is refused, what crosses the network, and which GPUs a worker gets.

Takes minutes; `make test-cluster` runs it. Reads the packets of the loopback device, which carries a host's traffic to
its own addresses. So the test needs the right to open a packet socket (root has the right).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.devices.host_gpus import DISCOVERY_SCRIPT
from deepspark_ops.exchange.transport.channel.handshake import MAGIC, SECRET_BYTES
from deepspark_ops.processes.cluster_network import address_towards
from deepspark_ops.train.driver.worker_slots import TELL_S
from tests.fake_smi import smi_folder
from tests.integration.train.test_spark_job import Job, training

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow]

START_TIMEOUT_S = 120.0
SPARK_CLASS = Path(sys.executable).with_name("spark-class")
REGISTERED = "Successfully registered"
IPV4 = b"\x08\x00"
CLOSURE = (b"ExchangeAddress", b"exchange_timeout_s", b"run_in_task", b"start_state")
"""Names in the pickled closure of a training's tasks; the first is the class that holds the exchange's secret."""
RECORDER = """
import os, secrets, sys

_made = secrets.token_bytes

def token_bytes(*arguments):
    made = _made(*arguments)
    if sys._getframe(1).f_globals["__name__"] == "deepspark_ops.exchange.transport.listening.certificate":
        with open(os.environ["MADE_SECRETS"], "a") as file:
            file.write(made.hex() + chr(10))
    return made

secrets.token_bytes = token_bytes
"""
"""A sitecustomize.py: writes down what the driver draws as secrets, so that a capture can be searched for them."""


def outside_address() -> str:
    try:
        address = address_towards("203.0.113.1", 9)
    except OSError:
        pytest.skip("this host has no way out and so no address but loopback")
    return address


@contextmanager
def spark_class(
    *arguments: str,
    log: Path,
    ready: str,
    settings: Path,
    program: Path = SPARK_CLASS,
) -> Iterator[None]:
    """Run a daemon of Spark until the block ends; the block begins at the daemon's ready line."""
    environment = {**os.environ, "SPARK_CONF_DIR": str(settings), "PYTHONPATH": os.pathsep.join(sys.path)}
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(program), *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not re.search(ready, log.read_text()):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@contextmanager
def standalone_master(folder: Path, address: str, settings: str) -> Iterator[str]:
    """Start a master with these lines in ``folder``/conf/spark-defaults.conf; yield its name."""
    # Without compression a name in a closure is found as it is.
    (folder / "conf").mkdir(mode=0o700)
    (folder / "conf" / "spark-defaults.conf").write_text(f"spark.broadcast.compress false\n{settings}")
    with socket.socket() as probe:
        probe.bind((address, 0))
        port = probe.getsockname()[1]
    start = ["org.apache.spark.deploy.master.Master", "--host", address, "--port", str(port), "--webui-port", "0"]
    with spark_class(*start, log=folder / "master.log", ready="New state: ALIVE", settings=folder / "conf"):
        yield f"spark://{address}:{port}"


def worker_arguments(master: str, host: str, work: Path, *, cores: int = 1, memory: str = "1g") -> list[str]:
    """Return what starts a worker of a cluster; its ``ready`` is REGISTERED."""
    options = ["--host", host, "--webui-port", "0", "--work-dir", str(work), "--cores", str(cores), "--memory", memory]
    return ["org.apache.spark.deploy.worker.Worker", *options, master]


@contextmanager
def cluster(folder: Path, address: str, settings: str, *, cores: int = 1, memory: str = "1g") -> Iterator[str]:
    """Start a master and a worker; as ``standalone_master``."""
    with standalone_master(folder, address, settings) as master:
        start = worker_arguments(master, address, folder / "work", cores=cores, memory=memory)
        with spark_class(*start, log=folder / "worker.log", ready=REGISTERED, settings=folder / "conf"):
            yield master


class Packets:
    """Packets of this host to an own address while the block runs."""

    def __init__(self, address: str) -> None:
        self._address = socket.inet_aton(address)
        self._is_over = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self.content = b""

    def __enter__(self) -> Packets:
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        except PermissionError:
            pytest.skip("reading packets needs CAP_NET_RAW")
        self._socket.settimeout(0.2)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._reader.join()
        self._socket.close()

    def _read(self) -> None:
        packets = []
        while not self._is_over.is_set():
            try:
                packet = self._socket.recv(1 << 17)
            except TimeoutError:
                continue
            if packet[12:14] == IPV4 and packet[26:34] == self._address * 2:
                packets.append(packet)
        self.content = b"".join(packets)


@pytest.fixture
def made_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the secrets that a job has drawn, a line of hex digits each."""
    (tmp_path / "recorder").mkdir()
    (tmp_path / "recorder" / "sitecustomize.py").write_text(RECORDER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "recorder"), *sys.path]))
    monkeypatch.setenv("MADE_SECRETS", str(tmp_path / "secrets"))
    return tmp_path / "secrets"


def secrets_of_exchange(file: Path) -> list[bytes]:
    return [bytes.fromhex(line) for line in file.read_text().split() if len(line) == 2 * SECRET_BYTES]


def finished_job(folder: Path, master: str, *, n_workers: int = 1, **options: object) -> Job:
    job = training(folder, "max_iter: 200", n_workers=n_workers, master=master, transport="socket", **options)
    job.wait()
    return job


def test_a_cluster_with_a_secret_encrypts_and_workers_reach_the_drivers_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_secrets: Path
) -> None:
    address, secret = outside_address(), secrets.token_hex(32)
    # The daemons send in clear: only this project encrypts between driver and executors.
    settings = f"spark.authenticate true\nspark.authenticate.secret {secret}\n"
    with cluster(tmp_path, address, settings) as master:
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
        with Packets(address) as packets:
            job = finished_job(tmp_path, master)
        doctor = subprocess.run(
            [sys.executable, "-m", "deepspark_ops.command.cli", "doctor", "--json", "--master", master],
            cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
    assert job.process.returncode == 0, "\n".join(job.lines)
    address_lines = [line for line in job.lines if f"workers connect to the exchange server {address}:" in line]
    assert address_lines
    assert address_lines[0].endswith(" by TLS 1.3")
    assert job.events("worker_joined")[0].data["transport"] == "socket"
    assert len(packets.content) > 1000
    drawn = secrets_of_exchange(made_secrets)
    assert drawn
    for hidden in (*drawn, *(secret_bytes.hex().encode() for secret_bytes in drawn), *CLOSURE, secret.encode()):
        assert hidden not in packets.content
    assert MAGIC not in packets.content, "frames of the exchange in clear"
    assert not [path for path in job.paths.root.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert not any(secret in line for line in job.lines)
    checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert [check for check in checks.values() if not check["ok"]] == [], doctor.stderr
    assert checks["encryption"]["detail"].endswith("=true, spark.network.crypto.cipher=AES/GCM/NoPadding")
    assert checks["slots"]["detail"].endswith(": slots 1, executors 1")
    assert secret not in doctor.stdout + doctor.stderr


ENABLED = "spark.network.crypto.enabled true\n"
GCM = "spark.network.crypto.cipher AES/GCM/NoPadding\nspark.network.crypto.authEngineVersion 2\n"


@pytest.mark.parametrize(
    ("daemons", "driver", "is_same"),
    [
        pytest.param(ENABLED + GCM, ENABLED + GCM, True, id="as docs/guides/cluster.md has it"),
        pytest.param(ENABLED, ENABLED, True, id="AES/CTR, Spark's default"),
        pytest.param(ENABLED + GCM, "", True, id="the job's own cipher is that of the daemons"),
        pytest.param(ENABLED, "", False, id="the job's own cipher is another"),
    ],
)
def test_daemons_that_encrypt_need_the_drivers_cipher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemons: str, driver: str, is_same: bool
) -> None:
    secret = f"spark.authenticate true\nspark.authenticate.secret {secrets.token_hex(32)}\n"
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / "spark-defaults.conf").write_text(secret + driver)
    with cluster(tmp_path, outside_address(), secret + daemons) as master:
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "driver"))
        job = finished_job(tmp_path, master)
    if is_same:
        assert job.process.returncode == 0, "\n".join(job.lines)
        assert job.events("worker_joined")[0].data["transport"] == "socket"
    else:
        assert job.process.returncode == 1, "\n".join(job.lines)
        assert "or another cipher (spark.network.crypto.cipher, authEngineVersion" in job.error_lines[0]


def test_a_cluster_without_a_secret_is_refused_and_sends_the_exchanges_in_clear_if_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_secrets: Path
) -> None:
    address = outside_address()
    with cluster(tmp_path, address, "") as master:
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
        refused = finished_job(tmp_path, master)
        assert refused.process.returncode == 2, "\n".join(refused.lines)
        assert refused.error_lines[0].startswith(f"master={master}: a standalone cluster encrypts only with a secret")
        assert not refused.paths.root.exists()
        with Packets(address) as packets:
            job = finished_job(tmp_path, master, insecure_network=True, tls="off")
    assert job.process.returncode == 0, "\n".join(job.lines)
    assert "WARNING: the exchange's secret crosses the network in clear, as insecure_network allows" in job.lines
    visible_secrets = [
        secret_bytes for secret_bytes in secrets_of_exchange(made_secrets) if secret_bytes in packets.content
    ]
    assert visible_secrets, "the other test looks for what cannot be found"
    assert [name for name in CLOSURE if name not in packets.content] == []
    assert any(line.startswith("WARNING: tls=off: whoever is on the way") for line in job.lines)
    assert MAGIC in packets.content, "likewise"


def test_each_worker_gets_the_gpus_that_spark_assigns_to_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The project's own script for the cluster's worker; only nvidia-smi is a stand-in, so that TensorFlow sees no GPU.
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    programs = smi_folder(tmp_path / "bin", "5\n7")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    offered = f"spark.worker.resource.gpu.amount 2\nspark.worker.resource.gpu.discoveryScript {DISCOVERY_SCRIPT}\n"
    with cluster(tmp_path, "127.0.0.1", offered, cores=2, memory="3g") as master:
        # Two executors of a core and a GPU each: Spark is asked for them.
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
        refused = finished_job(tmp_path, master, n_workers=2, devices="gpu")
        # One executor with both GPUs, as the cluster's settings grant.
        (tmp_path / "grants").mkdir()
        (tmp_path / "grants" / "spark-defaults.conf").write_text("spark.executor.resource.gpu.amount 2\n")
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "grants"))
        job = finished_job(tmp_path, master, n_workers=2, strategy="sync", run_dir=str(tmp_path / "granted"))
    assert refused.process.returncode == 2, "\n".join(refused.lines)
    message = r"devices=gpu: TensorFlow sees no GPU in this process, 1 needed \(.*CUDA_VISIBLE_DEVICES='[57]'\)"
    assert re.match(message, refused.error_lines[0])
    assert job.process.returncode == 0, "\n".join(job.lines)
    notes = {event.worker: event.data["note"] for event in job.events("worker_devices")}
    assert notes.keys() == {0, 1}
    assert {re.search(r"CUDA_VISIBLE_DEVICES='(.*)'", note)[1] for note in notes.values()} == {"5", "7"}
    assert {event.data["n_threads"] for event in job.events("worker_devices")} == {1}


def test_executors_that_come_only_for_waiting_tasks_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocation = (
        "spark.dynamicAllocation.enabled true\nspark.dynamicAllocation.minExecutors 0\n"
        "spark.dynamicAllocation.shuffleTracking.enabled true\nspark.executor.cores 4\n"
    )
    waits = {"min_workers": 2, "min_workers_wait_s": 60.0}
    with cluster(tmp_path, "127.0.0.1", allocation, cores=4) as master:
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
        job = finished_job(tmp_path, master, n_workers=2, **waits)
    assert job.process.returncode == 0, "\n".join(job.lines)
    # Both run in one executor of four cores, started for these workers alone; this host may have fewer cores.
    share = min(2, host_cores())
    assert {event.worker: event.data["n_threads"] for event in job.events("worker_devices")} == {0: share, 1: share}


def test_a_cluster_with_a_slot_too_few_is_told_of_and_fails_below_min_workers(tmp_path: Path) -> None:
    master = "local-cluster[1,1,1024]"  # a separate JVM with one core
    job = training(tmp_path, "max_iter: 200", n_workers=2, master=master)
    assert job.wait() == 0, "\n".join(job.lines)
    last = f"at most 1 of 2 workers had a slot at once: master={master} offered 1 slot in 1 executor"
    assert any(re.match(rf"WARNING: driver clock=200: {re.escape(last)}", line) for line in job.lines)
    assert [event.data["text"] for event in job.events("note") if "warning" in event.data][-1].startswith(last)

    # Time to be told twice: a busy machine takes long to start the executor, and is told of without a slot at first.
    least = {"min_workers": 2, "min_workers_wait_s": 2 * TELL_S + 10.0}
    job = training(tmp_path, "max_iter: 10000000", n_workers=2, master=master, run_dir=str(tmp_path / "least"), **least)
    assert job.wait() == 1, "\n".join(job.lines)
    warnings = [event for event in job.events("note") if "warning" in event.data]
    assert warnings[0].time - job.events("stage")[0].time < 30.0
    text = "1 of 2 workers have a slot; the cluster offers 1 slot in 1 executor"
    assert warnings[-1].data["text"].startswith(text)
    assert job.error_lines == [job.events("stage")[-1].data["reason"]]
    assert job.error_lines[0].startswith(
        "1 of 2 workers have a slot; fewer than min_workers=2 had one for min_workers_w"
    )
