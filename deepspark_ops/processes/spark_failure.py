"""One line for the error of a Spark job, extracted from Java frames and Python tracebacks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from deepspark_ops.errors import ConfigError, DataError, DeepSparkError

_OWN_ERRORS = ("deepspark_ops.errors.", "caffe_import.errors.")
_PYTHON_ERROR = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit)\b")
_ENDED = re.compile(
    r"SparkContext (?:has been shutdown|was shut ?down)|stopped SparkContext|Master removed our application"
)
_TASK_LOST = re.compile(
    r"Task (\d+) in stage \S+ failed (\d+) times, most recent failure: "
    r"Lost task .*?\): (.*?)\.?(?: Consider setting .*)?$",
    re.MULTILINE,
)
_JAVA_ERROR = re.compile(r"^(?:: |Caused by: )[\w.$]+(?:Exception|Error): (.+)$", re.MULTILINE)
_REFUSED = re.compile(
    r"^(?:: |Caused by: )(?:java\.lang\.(?:IllegalArgument|NumberFormat|ClassNotFound)Exception"
    r"|org\.apache\.spark\.SparkIllegalArgumentException): ",
    re.MULTILINE,
)
_SPARK_CODE = re.compile(r"\[[A-Z_.]+\] | SQLSTATE: \w+")
"""Codes before and after Spark's messages."""
_JAVA_NEXT = re.compile(r"\s+at |Caused by: |\s*\.\.\. \d+ more")
_SETTING = re.compile(r"\bspark(?:\.\w+)+")
_HIDDEN = re.compile(r"secret|password|token|credential", re.IGNORECASE)
_SHORTEST_VALUE = 2
"""Shortest value of a setting to search for in a message; single digits occur in many messages."""

JVM_ENDED = (
    "Spark's JVM on this host has ended: it was killed, mostly since the host or its container ran out of memory (dmesg"
    " says so), or it crashed (hs_err_pid*.log in the working directory); make memory free, lower n_workers or"
    " spark.driver.memory, and run it again"
)
_LOST_PEER = (ConnectionError, BrokenPipeError)


def jvm_has_ended(error: BaseException) -> bool:
    """Return whether an error means the end of the driver's JVM: py4j lost the connection.

    An error from Java proves a living JVM.

    Args:
        error: Error of py4j or pyspark.
    """
    cause: BaseException | None = error
    while cause is not None and type(cause).__name__ != "Py4JJavaError":
        if type(cause).__name__ == "Py4JNetworkError" or (isinstance(cause, _LOST_PEER) and _came_from_py4j(cause)):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _came_from_py4j(error: BaseException) -> bool:
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_globals.get("__name__", "").startswith("py4j."):
            return True
        frame = frame.tb_next
    return False


def spark_failure(error: Exception, *, master: str, task: str, has_stopped: bool = False) -> str:
    """Return the error in one line.

    Args:
        error: Error of pyspark or py4j.
        master: Spark master of the job.
        task: Name of the job's tasks.
        has_stopped: Spark's context has stopped although this process did not stop the context; errors of a job that is
            submitted meanwhile have many texts ("Task not serializable").

    Example:
        >>> text = "Job aborted: Task 1 in stage 0.0 failed 4 times, most recent failure: Lost task 1.3 (x): gone."
        >>> spark_failure(RuntimeError(text), master="yarn", task="worker")
        'worker 1 was lost 4 times, most recently by gone; was its host out of memory?'
    """
    if jvm_has_ended(error):
        return JVM_ENDED
    try:
        text = str(error)
    except Exception as silent:
        if not jvm_has_ended(silent):
            raise
        return JVM_ENDED  # the text of a Java error was in the JVM, which has ended
    if has_stopped or _ENDED.search(text):
        return (
            f"the application was ended from outside: master={master} does not answer, has another"
            " spark.authenticate.secret than this host or another cipher (spark.network.crypto.cipher,"
            " authEngineVersion and enabled must be the same on master, workers and here:"
            " docs/guides/cluster.md), or ended it; Spark's own lines are above"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The cause of a Python error inside a Java error is the last line of the Python traceback.
    causes = [line for line in lines if _PYTHON_ERROR.match(line)]
    # A traceback has the cause of an error above the error.
    causes = [line for line in causes if line.startswith(_OWN_ERRORS)][-1:] or causes
    if not causes and (lost := _TASK_LOST.search(text)):
        return f"{task} {lost[1]} was lost {lost[2]} times, most recently by {lost[3]}; was its host out of memory?"
    return (causes or _JAVA_ERROR.findall(_SPARK_CODE.sub("", text)) or lines or [type(error).__name__])[0]


def error_of_task(line: str) -> DeepSparkError | None:
    """Return DeepSpark's error in a task; None for other lines.

    Args:
        line: Result of ``spark_failure``.
    """
    kind, _, text = line.partition(": ")
    if not kind.startswith(_OWN_ERRORS):
        return None
    kinds = {error.__name__: error for error in (ConfigError, DeepSparkError)}
    return kinds.get(kind.rpartition(".")[2], DataError)(text)


def job_error(error: Exception, *, master: str, failed: str) -> DeepSparkError:
    """Return DeepSpark's error in a task of a job, else an error with the job's failure in one line.

    Args:
        error: Error of pyspark or py4j.
        master: Spark master of the job.
        failed: Begins the line, for example ``the shards were not written``.
    """
    reason = spark_failure(error, master=master, task="task")
    return error_of_task(reason) or DeepSparkError(f"{failed}: {reason}")


def refused_setting(error: Exception, settings: Mapping[str, str]) -> str | None:
    """Return Spark's refused setting, with the reason in one line; None for other errors.

    Spark's message usually names the setting. If its last line has only the value, the settings with this value are
    named.

    Args:
        error: Error of py4j; the JVM must still answer.
        settings: All settings of Spark, name -> value.
    """
    text = str(error)
    if (kind := _REFUSED.search(text)) is None:
        return None
    lines = itertools.takewhile(lambda line: not _JAVA_NEXT.match(line), text[kind.end() :].splitlines())
    message_lines = [line.strip() for line in lines if line.strip()]
    reason = _SPARK_CODE.sub("", " ".join(message_lines))
    if "ClassNotFound" in kind[0]:
        reason = f"there is no class {reason}"
    named = [name for name in dict.fromkeys(_SETTING.findall(reason)) if name in settings]
    of_value = [
        name
        for name, value in settings.items()
        if len(value) >= _SHORTEST_VALUE and re.search(rf"(?<![\w.]){re.escape(value)}(?!\w)", message_lines[-1])
    ]
    suspects = named or of_value
    shown = " or ".join(name if _HIDDEN.search(name) else f"{name}={settings[name]}" for name in suspects)
    return f"Spark refuses {shown or 'a setting'}: {reason}"
