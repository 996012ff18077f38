"""Stages as processes, seen from the parent: start, supervision and end.

Used by the command line and by the Airflow operators; imports neither Airflow nor pyspark. ``job_log`` describes the
reports of a stage to its parent.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from caffe_import.extras import require
from deepspark_ops.config.base import StageConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.processes.handed_signals import handed_on, raise_interruption
from deepspark_ops.processes.job_log import JobLog, LineHandler
from deepspark_ops.processes.parent_death import end_with_parent_thread
from deepspark_ops.processes.stage_process import PARENT_WATCH
from deepspark_ops.processes.versions import installed_versions
from deepspark_ops.run_paths import write_text_whole

WORKERS_PYTHON = "spark.pyspark.python"
"""Spark property: the interpreter of Spark's workers."""
DRIVERS_PYTHON = "spark.pyspark.driver.python"
OLDEST_JAVA = 17
"""Spark 4 needs Java 17 or newer."""

_GATEWAY = frozenset({"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"})
"""Environment: the JVM that spark-submit started for this driver."""
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Environment: options of the JVM that spark-submit starts; spark.driver.extraJavaOptions come after them."""
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
_DATA = ("source", "test_source", "validation_source", "dataset", "input", "run_dir")
"""Fields of stages' configs that name input data."""
_STOP_TIMEOUT_S = 10.0
_JAVA_TIMEOUT_S = 60.0


def popen_arguments() -> dict[str, object]:
    """Return arguments of ``subprocess.Popen`` for a child that ends with the parent.

    ``stdin`` is closed because an Airflow task's stdin is the socket to the supervisor: a child with the socket keeps a
    dead task "running" for a minute. The death signal is bound to the starting thread: use the main thread.
    """
    parent = os.getpid()
    return {"stdin": subprocess.DEVNULL, "preexec_fn": lambda: end_with_parent_thread(parent)}


def job_variables(inherited: Mapping[str, str], *, master: str = "local[*]") -> dict[str, str]:
    """Return the environment variables of a stage's process and of the Spark workers, in addition to ``inherited``.

    Args:
        inherited: Base environment; its settings for TensorFlow and addresses take precedence.
        master: Spark master of the job.
    """
    paths = [str(_PACKAGE_ROOT), *inherited.get("PYTHONPATH", "").split(os.pathsep)]
    variables = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path for path in paths if path)),
        # A script's folder must not precede the standard library: stage modules could shadow standard modules.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": inherited.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        PARENT_WATCH: str(os.getpid()),
    }
    if master.startswith("local"):
        # Otherwise Spark binds to the address of the host's name and warns about a loopback address.
        variables["SPARK_LOCAL_IP"] = inherited.get("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


def spark_conf(local_dir: Path | None = None) -> dict[str, str]:
    """Return the Spark properties of every DeepSpark job.

    Args:
        local_dir: Folder for Spark's scratch files, inside the run instead of /tmp.
    """
    conf = {
        "spark.log.level": "WARN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Two copies of a worker would take each other's grants.
        "spark.speculation": "false",
    }
    if local_dir is not None:
        conf["spark.local.dir"] = str(local_dir)
    return conf


def jvm_of_python_tasks(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variable for Spark's JVM if Python alone computes, in the workers.

    Such a JVM runs for a short time or waits: to compile its code a second time costs more than the better code saves.

    Args:
        inherited: Base environment; options there take precedence.
    """
    return {_JVM_OPTIONS: " ".join(filter(None, ["-XX:TieredStopAtLevel=1", inherited.get(_JVM_OPTIONS)]))}


def require_spark() -> None:
    """Refuse to start a Spark stage without Java, or without exactly one pyspark.

    Raises:
        ModuleNotFoundError: pyspark is missing; the message names the extra.
        ConfigError: pyspark and pyspark-client differ, or Java is missing or too old.
    """
    require("pyspark", part="a Spark stage")
    require_one_pyspark()
    require_java()


def require_one_pyspark() -> None:
    """Refuse different versions of pyspark and pyspark-client.

    Raises:
        ConfigError: The versions differ; the message has the command that repairs the installation.
    """
    if mixed := mixed_pyspark(installed_versions("pyspark", "pyspark-client")):
        raise ConfigError(mixed)


def mixed_pyspark(versions: Mapping[str, str]) -> str | None:
    """Return finding and remedy for different versions of pyspark and pyspark-client; None for a sound installation.

    The remedy takes the client's version: every version of pyspark-client exists of pyspark, too, but not the reverse.

    Args:
        versions: Installed distribution -> version; may have further distributions.

    Example:
        >>> mixed_pyspark({"pyspark": "4.2.0", "pyspark-client": "4.2.0"})
        >>> mixed_pyspark({"pyspark": "4.2.1", "pyspark-client": "4.2.0"}).partition(";")[0]
        "pyspark 4.2.1 and pyspark-client 4.2.0 overwrite each other's files"
    """
    spark, client = versions.get("pyspark"), versions.get("pyspark-client")
    if spark is None or client is None or spark == client:
        return None
    return (
        f"pyspark {spark} and pyspark-client {client} overwrite each other's files; install one version of both:"
        f" pip install --force-reinstall --no-deps pyspark=={client} pyspark-client=={client}"
    )


def require_java(environment: Mapping[str, str] | None = None) -> Path:
    """Return the ``java`` that Spark will start.

    Raises:
        ConfigError: Java is missing, or older than Spark 4 accepts.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME", "")
    java = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java", path=environment.get("PATH"))
    remedy = "install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    if java is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        msg = f"no Java found by {where}; Spark needs Java {OLDEST_JAVA} or newer: {remedy}"
        raise ConfigError(msg)
    release = java_version(java_text(Path(java)))
    if release is None or release < OLDEST_JAVA:
        msg = f"{java} is Java {release or 'of unknown version'}; Spark needs {OLDEST_JAVA} or newer: {remedy}"
        raise ConfigError(msg)
    return Path(java)


def java_text(java: Path) -> str:
    """Return the first line of ``java -version``; empty without an answer."""
    try:
        answer = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_JAVA_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (answer.stderr + answer.stdout).splitlines()
    return next((line.strip() for line in lines if "version" in line), "")


def java_version(text: str) -> int | None:
    """Return the feature release in what ``java -version`` prints.

    Example:
        >>> java_version('openjdk version "17.0.13" 2024-10-15'), java_version('java version "1.8.0_292"')
        (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def run_job(
    module: str,
    config: StageConfig,
    *,
    on_line: LineHandler,
    config_path: Path | None = None,
    cwd: Path | None = None,
    answers_signals: bool = False,
) -> None:
    """Run ``python -m MODULE CONFIG.json`` to its end; no part of the job outlives this process.

    Call from the main thread (see ``popen_arguments``). Any exception, KeyboardInterrupt included, ends the child.

    Args:
        module: Entry module of a stage, e.g. ``deepspark_ops.ingest.spark_job``.
        config: Config, written as JSON for the child.
        on_line: Called with level and text of each line as it arrives.
        config_path: File of the JSON; default: a temporary file.
        cwd: Base of relative paths inside Caffe's files; default: this process' working directory.
        answers_signals: Whether Ctrl-C, SIGTERM and SIGHUP are passed to the stage, which ends by itself.

    Raises:
        StageFailed: The stage ended with an error; the message is the stage's last message.
        KeyboardInterrupt, SystemExit: The stage ended by a passed signal.
    """
    with _config_file(config, config_path) as path:
        command = [sys.executable, "-m", module, str(path)]
        master = getattr(config, "master", None) or "local[*]"
        run_command(
            command,
            stage=stage_of(module),
            on_line=on_line,
            master=master,
            cwd=cwd,
            answers_signals=answers_signals,
            reads=named_data(config),
        )


def named_data(config: StageConfig) -> str:
    """Return the input data in a stage's config, for a message; without a dataset the sources of the solver's nets."""
    values = {name: getattr(config, name, None) for name in _DATA}
    named = [f"{name}={value}" for name, value in values.items() if value]
    if values["dataset"] is None and (solver := getattr(config, "solver", None)):
        named.insert(0, f"what the nets of {solver} name")
    return ", ".join(named)


def stage_of(module: str) -> str:
    """Return the stage's word in a module path: ``deepspark_ops.ingest.spark_job`` -> ``ingest``."""
    return module.removeprefix("deepspark_ops.").split(".")[0]


@contextmanager
def _config_file(config: StageConfig, path: Path | None) -> Iterator[Path]:
    if path is not None:
        write_text_whole(path, config.model_dump_json(indent=2))
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="deepspark-") as folder:
        path = Path(folder, "config.json")
        path.write_text(config.model_dump_json(indent=2), encoding="utf-8")
        yield path


def run_command(
    command: Sequence[str],
    *,
    stage: str,
    on_line: LineHandler,
    master: str = "local[*]",
    cwd: Path | None = None,
    answers_signals: bool = False,
    reads: str = "",
) -> None:
    """Run a stage's command, pass the lines on, and raise the last message of a failed command; see ``run_job``.

    Raises:
        StageFailed: The exit code is not 0.
        KeyboardInterrupt, SystemExit: The stage ended by a passed signal.
    """
    # A stage starts its own JVM; the JVM of a Spark driver that starts the stage belongs to another application.
    inherited = {name: value for name, value in os.environ.items() if name not in _GATEWAY}
    env = {**inherited, **job_variables(os.environ, master=master)}
    log = JobLog(on_line)
    process = subprocess.Popen(  # type: ignore[call-overload]
        list(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=env,
        cwd=cwd,
        process_group=0 if answers_signals else None,
        **popen_arguments(),
    )
    try:
        with handed_on(process) if answers_signals else nullcontext():
            for line in process.stdout:
                log.feed(line)
            exit_code = process.wait()
    finally:
        stop(process)
    if exit_code:
        if answers_signals:
            raise_interruption(exit_code)
        raise log.failure(stage, exit_code, reads=reads)


def stop(process: subprocess.Popen[str]) -> None:
    """End a live child with all grandchildren: ask, wait, then kill."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
