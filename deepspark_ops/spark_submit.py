"""Stages as processes: how one is started, watched and ended, and how it tells its parent what happened.

Used by the command line and by the Airflow operators; knows neither Airflow nor pyspark. A stage's process writes log
lines to stderr as ``LEVEL: text``, further lines of the same message as ``LEVEL| text``, and ends with exit code 0,
with ``USER_MISTAKE`` where only the user can help, or with 1 where another try may. ``stage_main`` is the child's side
of that agreement, ``run_job`` and ``JobLog`` the parent's.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from caffe_import.errors import CaffeImportError
from deepspark_ops.config import StageConfig
from deepspark_ops.errors import ConfigError, DataError, DeepSparkError
from deepspark_ops.run_paths import write_text_whole

USER_MISTAKE = 2
"""Exit code of a stage whose input must be corrected; repeating it unchanged cannot help."""
FAILED = 1
_NOT_THERE_FOR_US = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
OLDEST_JAVA = 17
"""Spark 4 needs Java 17 or newer."""
LineHandler = Callable[[int, str], None]
"""Takes the level of ``logging`` and the text of one line of a job's output."""

_PACKAGE_ROOT = Path(__file__).resolve().parents[1]
_PARENT_WATCH = "DEEPSPARK_PARENT_PID"
"""Environment: the stage's process must end with its parent. Workers and servers inherit it but do not read it."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_STOP_TIMEOUT_S = 10.0
_STAGE_LINE = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL)([:|]) ?(.*)", re.DOTALL)
_SPARK_LINE = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (.*)", re.DOTALL)
_SPARK_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
# Said by every JVM and every TensorFlow process, whatever it does; a reader of the task log can do nothing with it.
_NOISE = re.compile(
    r"WARNING: Using incubator modules: jdk\.incubator\.vector"
    r"|.*WARN NativeCodeLoader: Unable to load native-hadoop library"
    r"|Using Spark's default log4j profile"
    r"|Setting (?:default|Spark) log level to "
    r"|.*INFO SparkContext: "  # its banner, before it reads spark.log.level
    r"|.*WARN Utils: (?:Your hostname, .* resolves to a loopback address|Set SPARK_LOCAL_IP)"
    r"|.*WARN SparkConf: Note that spark\.local\.dir will be overridden"
    r"|To adjust logging level use "
    r"|.*oneDNN custom operations are on"
    r"|.*This TensorFlow binary is optimized to use available CPU instructions"
    r"|To enable the following instructions:"
    r"|WARNING: All log messages before absl::InitializeLog"
    r"|.*failed call to cuInit|.*Could not find cuda drivers|.*cuda_executor\.cc"
)


class StageFailed(DeepSparkError):
    """A stage's process ended with an error.

    Attributes:
        exit_code: The process' exit code; negative for a signal.
        is_user_mistake: Whether the user must correct something; else another try may succeed.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        """Keep the stage's own last error message and its exit code."""
        super().__init__(message)
        self.exit_code = exit_code
        self.is_user_mistake = exit_code == USER_MISTAKE


class JobLog:
    """Reads a job's output line by line: finds each line's level, drops known noise, keeps the last error message.

    Not thread-safe: one reader.
    """

    def __init__(self, on_line: LineHandler) -> None:
        """Hand every line that is worth reading to ``on_line``."""
        self._on_line = on_line
        self._level = logging.INFO
        self._error: list[str] = []
        self._error_is_open = False
        self._last_line = ""

    def feed(self, raw: str) -> None:
        """Take one line, with or without its newline."""
        line = raw.rstrip()
        if not line or _NOISE.match(line):
            return
        if match := _STAGE_LINE.fullmatch(line):
            text = match[3]
            self._level = logging.getLevelNamesMapping()[match[1]]
            self._keep_error(text, goes_on=match[2] == "|")
        else:
            text = line
            self._level = self._level_of_foreign(line)
            self._error_is_open = False
        self._last_line = text
        self._on_line(self._level, text)

    def _keep_error(self, text: str, *, goes_on: bool) -> None:
        if self._level < logging.ERROR:
            self._error_is_open = False
        elif goes_on and self._error_is_open:
            self._error.append(text)
        else:
            self._error, self._error_is_open = [text], True

    def _level_of_foreign(self, line: str) -> int:
        """Level of a line that no stage wrote: Spark's own mark, a traceback, else plain output."""
        if match := _SPARK_LINE.fullmatch(line):
            return _SPARK_LEVELS[match[1]]
        if line.startswith(("Traceback (most recent call last)", 'Exception in thread "')):
            return logging.ERROR
        is_continuation = line.startswith((" ", "\t")) or self._level >= logging.ERROR
        return self._level if is_continuation else logging.INFO

    def failure(self, stage: str, exit_code: int) -> StageFailed:
        """Return the error of a job that ended with ``exit_code``: the stage's last message, else how it ended."""
        if self._error:
            return StageFailed("\n".join(self._error), exit_code)
        how = f"exit code {exit_code}"
        if exit_code < 0 or exit_code > 128:
            number = -exit_code if exit_code < 0 else exit_code - 128
            how = f"signal {number}"
            if number == signal.SIGKILL:
                how += " (killed; was the machine out of memory?)"
        last = f"; its last line: {self._last_line}" if self._last_line else ""
        return StageFailed(f"stage {stage} ended with {how} and left no message{last}", exit_code)


# ---------------------------------------------------------------------------------------------------------------- child


class _StageFormatter(logging.Formatter):
    """``LEVEL: first line``, then ``LEVEL| next line`` for each further line, so that a message can be put together."""

    def format(self, record: logging.LogRecord) -> str:
        first, *others = super().format(record).splitlines() or [""]
        return "\n".join([f"{record.levelname}: {first}", *(f"{record.levelname}| {line}" for line in others)])


def stage_main(run: Callable[[Path], None], arguments: Sequence[str] | None = None) -> int:
    """Run a stage as the outermost loop of its own process and return the exit code.

    Args:
        run: The stage; takes the path of its config, JSON.
        arguments: The command line without the program's name; default ``sys.argv[1:]``.

    Example:
        ``if __name__ == "__main__": sys.exit(stage_main(main))`` at the end of a stage's entry module.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_StageFormatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for chatty in ("py4j", "absl", "tensorflow", "h5py"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    end_with_parent()
    log = logging.getLogger(__name__)
    if len(arguments) != 1:
        log.error("expected one argument, the stage's config as a JSON file; found %d", len(arguments))
        return USER_MISTAKE
    try:
        run(Path(arguments[0]))
    except (ConfigError, DataError, CaffeImportError) as error:
        log.error("%s", error)  # noqa: TRY400 - the message is whole; a traceback would hide it
        return USER_MISTAKE
    except StageFailed as error:
        log.error("%s", error)  # noqa: TRY400
        return error.exit_code if error.exit_code > 0 else FAILED
    except DeepSparkError as error:
        log.error("%s", error)  # noqa: TRY400
        return FAILED
    except Exception as error:
        if isinstance(error, OSError) and (told := file_trouble(error)):
            log.error("%s", told[1])  # noqa: TRY400
            return told[0]
        log.info("%s", "where it happened:", exc_info=error)
        log.error("%s: %s", type(error).__name__, error)  # noqa: TRY400 - the traceback stands above
        return FAILED
    return 0


def file_trouble(error: OSError) -> tuple[int, str] | None:
    """Return exit code and message where the file system refuses a path of the user's; None for other errors.

    Example:
        >>> file_trouble(PermissionError(errno.EACCES, "Permission denied", "/data/run"))
        (2, '/data/run: Permission denied; give a path that can be read and written, or make this one so')
    """
    where = error.filename or "a file"
    if error.errno in _NOT_THERE_FOR_US:
        return USER_MISTAKE, f"{where}: {error.strerror}; give a path that can be read and written, or make this one so"
    if error.errno in _NO_ROOM:
        return FAILED, f"{where}: {error.strerror}; make room there, or give a folder on another disk, and run it again"
    return None


def read_config_file(path: Path) -> str:
    """Return the text of a stage's config.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        msg = f"config {path}: {error.strerror or error}"
        raise ConfigError(msg) from error


def end_with_parent() -> None:
    """Ask the kernel to end this process when its parent dies, if it was started with ``job_variables``.

    Needed in the Python driver below spark-submit: the JVM between it and the task is its parent, and a JVM that is
    killed leaves its Python child alive. Linux only; elsewhere the child ends when its pipe to the JVM breaks.
    """
    if _PARENT_WATCH in os.environ:
        _set_parent_death_signal(os.getppid())


def _set_parent_death_signal(parent: int) -> None:
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before the kernel knew our wish
        os.kill(os.getpid(), signal.SIGTERM)


# --------------------------------------------------------------------------------------------------------------- parent


def popen_arguments() -> dict[str, object]:
    """Return what ``subprocess.Popen`` needs so that a child cannot outlive its parent.

    ``stdin`` is cut off since an Airflow task's is the socket to its supervisor: a child that holds it keeps a dead
    task "running" for a minute. The death signal is bound to the thread that starts the child: use the main thread.
    """
    parent = os.getpid()
    return {"stdin": subprocess.DEVNULL, "preexec_fn": lambda: _set_parent_death_signal(parent)}


def job_variables(inherited: Mapping[str, str], *, master: str = "local[*]") -> dict[str, str]:
    """Return the environment variables that a stage's process and its Spark workers need beside ``inherited``.

    Args:
        inherited: The environment that they will be added to; what it says about TensorFlow and addresses is kept.
        master: Spark master of the job.
    """
    paths = [str(_PACKAGE_ROOT), *inherited.get("PYTHONPATH", "").split(os.pathsep)]
    variables = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path for path in paths if path)),
        # A script's own folder does not come before the standard library, so no stage module can shadow one of it.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": inherited.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        _PARENT_WATCH: str(os.getpid()),
    }
    if master.startswith("local"):
        # Else Spark binds to the address of the host's name and warns when that is a loopback one.
        variables["SPARK_LOCAL_IP"] = inherited.get("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


def spark_conf(local_dir: Path | None = None) -> dict[str, str]:
    """Return the Spark properties of every job of ours.

    Args:
        local_dir: Folder for Spark's scratch files; they go with the run instead of filling /tmp.
    """
    conf = {
        "spark.log.level": "WARN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Two copies of one worker would take each other's grants.
        "spark.speculation": "false",
    }
    if local_dir is not None:
        conf["spark.local.dir"] = str(local_dir)
    return conf


def conf_arguments(conf: Mapping[str, str]) -> list[str]:
    """Return ``--conf key=value`` pairs."""
    return [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]


def require_java(environment: Mapping[str, str] | None = None) -> Path:
    """Return the ``java`` that Spark will start.

    Raises:
        ConfigError: None is found, or it is older than Spark 4 accepts.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME", "")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java", path=environment.get("PATH"))
    remedy = "install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    if found is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        msg = f"no Java found by {where}; Spark needs Java {OLDEST_JAVA} or newer: {remedy}"
        raise ConfigError(msg)
    answer = subprocess.run([found, "-version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    version = java_version(answer.stderr + answer.stdout)
    if version is None or version < OLDEST_JAVA:
        msg = f"{found} is Java {version or 'of unknown version'}; Spark needs {OLDEST_JAVA} or newer: {remedy}"
        raise ConfigError(msg)
    return Path(found)


def java_version(text: str) -> int | None:
    """Return the feature release in what ``java -version`` prints.

    Example:
        >>> java_version('openjdk version "17.0.13" 2024-10-15'), java_version('java version "1.8.0_292"')
        (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def run_job(
    module: str, config: StageConfig, *, on_line: LineHandler, config_path: Path | None = None, cwd: Path | None = None
) -> None:
    """Run ``python -m MODULE CONFIG.json`` to its end; nothing of it outlives this process.

    Call it from the main thread (see ``popen_arguments``). Any exception, KeyboardInterrupt included, ends the child.

    Args:
        module: Entry module of a stage, e.g. ``deepspark_ops.ingest.spark_job``.
        config: Written as JSON for the child.
        on_line: Called with level and text of each line as it arrives.
        config_path: Where the JSON is kept; default: a temporary file.
        cwd: Folder that relative paths inside Caffe's files are relative to; default: this process'.

    Raises:
        StageFailed: The stage ended with an error; the message is its own last one.
    """
    with _config_file(config, config_path) as path:
        command = [sys.executable, "-m", module, str(path)]
        master = getattr(config, "master", "local[*]")
        run_command(command, stage=stage_of(module), on_line=on_line, master=master, cwd=cwd)


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
    command: Sequence[str], *, stage: str, on_line: LineHandler, master: str = "local[*]", cwd: Path | None = None
) -> None:
    """Run a stage's command, hand on its lines, and raise its own last message if it fails.

    Raises:
        StageFailed: The exit code is not 0.
    """
    env = {**os.environ, **job_variables(os.environ, master=master)}
    env["PYSPARK_SUBMIT_ARGS"] = shlex.join([*conf_arguments(spark_conf()), "pyspark-shell"])
    log = JobLog(on_line)
    process = subprocess.Popen(  # type: ignore[call-overload]
        list(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=env,
        cwd=cwd,
        **popen_arguments(),
    )
    try:
        read_lines(process.stdout, log)
        exit_code = process.wait()
    finally:
        stop(process)
    if exit_code:
        raise log.failure(stage, exit_code)


def read_lines(lines: Iterable[str], log: JobLog) -> None:
    """Feed a job's output to its end."""
    for line in lines:
        log.feed(line)


def stop(process: subprocess.Popen[str]) -> None:
    """End a child that still lives: ask, wait, then kill; what it started ends with it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
