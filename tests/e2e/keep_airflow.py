"""Runs ``deepspark ui`` for a test session and ends the UI with the session: ``python -m tests.e2e.keep_airflow
FOLDER``.

See shared_airflow.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from deepspark_ops.devices.host_gpus import VISIBLE
from deepspark_ops.errors import ConfigError
from deepspark_ops.local_airflow.api import AirflowFailed, Api
from deepspark_ops.local_airflow.dag_files import DAGS
from deepspark_ops.local_airflow.services import free_port, require_free
from deepspark_ops.processes.parent_death import end_with_parent_thread
from deepspark_ops.run_paths import write_text_whole
from tests.e2e.shared_airflow import ENDED, OUTPUT, READY, SESSION_LOCK
from tests.e2e.small_example import AUTOENCODER, SmallExample
from tests.paths import ROOT

USERS = {"admin": "admin", "viewer": "viewer", "user": "user"}
"""Name -> role. A viewer may read all and trigger nothing; a user may trigger, too."""
RETRAINED_MODEL = "retrained"
"""The model that the scheduled runs of deepspark_retrain train; ``retrain/`` in the folder holds its example."""
NOTICES = "told.jsonl"
"""What notifiers were told, in the folder."""
STOP_S = 150.0
_POLL_S = 0.2


def environment(folder: Path) -> dict[str, str]:
    """Return the environment in which ``deepspark ui`` and other commands use the session's folders."""
    variables = {name: value for name, value in os.environ.items() if name != VISIBLE}  # a worker in a thread sets it
    return {
        **variables,
        "DEEPSPARK_AIRFLOW_HOME": str(folder / "airflow"),
        "DEEPSPARK_HOME": str(folder / "home"),
        "DEEPSPARK_RETRAIN_DEFAULTS": str(folder / "retrain.json"),
        "DEEPSPARK_RETRAIN_LATEST_START": "1440",  # unpausing makes up the last time: no test waits for the next one
        "DEEPSPARK_NOTIFIERS": str(folder / "notifiers.json"),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),  # the notifier's module
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
        # A scheduler delayed by a busy machine must not count as dead, and its running tasks not as orphans.
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "300",
        # A DAG file that is not read in time is read 600 s later, and its DAG is gone meanwhile.
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "200",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "250",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",  # the DAG files stay as they are
    }


def main(folder: Path) -> None:
    """Run Airflow until the session has ended, and write down what was wrong with its end."""
    is_over = threading.Event()
    threading.Thread(target=_await_session, args=(folder / SESSION_LOCK, is_over), daemon=True).start()
    port = free_port()
    write_settings(folder)
    process = start_airflow(folder, port)
    try:
        troubles = _keep(process, folder, port, is_over)
    finally:
        if process.poll() is None:
            process.kill()
    write_text_whole(folder / ENDED, json.dumps(troubles))


def write_settings(folder: Path) -> None:
    """Write the files that ``environment`` names: the training config of retraining, and the recipients of messages."""
    # A net without classes: what is not of classifiers alone is judged, gated, approved and promoted here.
    example = SmallExample(folder / "retrain", name="retrained", net=AUTOENCODER).write()
    conf = example.conf(overrides="max_iter: 60 base_lr: 0.002", n_workers=1, model=RETRAINED_MODEL)
    asks = {"approval": True, "approval_timeout": "8 min"}
    (folder / "retrain.json").write_text(json.dumps({**conf, **asks}))
    notifier = {"notifier": "tests.e2e.file_notifier.FileNotifier", "arguments": {"path": str(folder / NOTICES)}}
    (folder / "notifiers.json").write_text(json.dumps(notifier))


def _await_session(lock: Path, is_over: threading.Event) -> None:
    with lock.open("r+") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
    is_over.set()


def start_airflow(folder: Path, port: int, **variables: str) -> subprocess.Popen[bytes]:
    """Start ``deepspark ui``, whose environment has ``variables`` besides; it ends with this thread."""
    keeper = os.getpid()
    with (folder / OUTPUT).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "deepspark_ops.command.cli", "ui", "--port", str(port)],
            cwd=ROOT, env=environment(folder) | variables, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, preexec_fn=lambda: end_with_parent_thread(keeper),
        )  # fmt: skip


def _keep(process: subprocess.Popen[bytes], folder: Path, port: int, is_over: threading.Event) -> list[str]:
    is_ready = False
    while process.poll() is None and not is_over.wait(_POLL_S):
        if not is_ready and is_up(folder, port):
            is_ready = True
            write_text_whole(folder / READY, json.dumps({"port": port}))
    if process.poll() is not None:
        return [f"deepspark ui ended by itself with code {process.returncode}; see {folder / OUTPUT}"]
    process.terminate()
    troubles = troubles_of_end(process, folder, port)
    return troubles if is_ready else []  # a session that ended before Airflow was up waits for no end in good order


def is_up(folder: Path, port: int) -> bool:
    """Whether ``deepspark ui`` says so and all DAGs are there."""
    if "Ctrl-C ends it" not in (folder / OUTPUT).read_text():
        return False
    try:
        dag_ids = {
            dag["dag_id"] for dag in Api(port, folder / "airflow" / "passwords.json").call("GET", "/dags")["dags"]
        }
    except AirflowFailed:
        return False
    return set(DAGS) <= dag_ids


def troubles_of_end(process: subprocess.Popen[bytes], folder: Path, port: int) -> list[str]:
    """SIGTERM was sent: all has to end, with code 0, and to leave no process and the port free."""
    began = time.monotonic()
    try:
        code = process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        return [f"deepspark ui did not end within {STOP_S:g} s after SIGTERM"]
    troubles = [f"deepspark ui ended with code {code} after SIGTERM"] if code else []
    troubles += [f"left by deepspark ui: {text}" for text in _processes_with(str(folder / "airflow"))]
    try:
        require_free(port)
    except ConfigError as error:
        troubles.append(str(error))
    sys.stdout.write(f"ended in {time.monotonic() - began:.1f} s\n")
    return troubles


def _processes_with(text: str) -> list[str]:
    """Return id and command of every process with ``text`` in its environment, without zombies. Linux alone."""
    processes = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (path / "environ").read_bytes():
                processes.append(
                    f"{path.name} {(path / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()[:200]}"
                )
        except OSError:
            continue
    return processes


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # the test that started this may end before the session does
    main(Path(sys.argv[1]))
