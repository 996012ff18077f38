"""One line for the error of a Spark job, which is a page of Java frames with perhaps a Python traceback inside."""

from __future__ import annotations

import re

_PYTHON_ERROR = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit)\b")
_ENDED = re.compile(
    r"SparkContext (?:has been shutdown|was shut ?down)|stopped SparkContext|Master removed our application"
)
_TASK_LOST = re.compile(
    r"Task (\d+) in stage \S+ failed (\d+) times, most recent failure: "
    r"Lost task .*?\): (.*?)\.?(?: Consider setting .*)?$",
    re.MULTILINE,
)

JVM_ENDED = (
    "Spark's JVM on this host has ended: it was killed, mostly since the host or its container ran out of memory (dmesg"
    " says so), or it crashed (hs_err_pid*.log in the working directory); make memory free, lower n_workers or"
    " spark.driver.memory, and run it again"
)
_LOST_PEER = (ConnectionError, BrokenPipeError)


def jvm_has_ended(error: BaseException) -> bool:
    """Return whether an error is what a driver gets whose JVM is gone: py4j finds nobody at the other end.

    Args:
        error: As py4j or pyspark raised it.
    """
    seen: BaseException | None = error
    while seen is not None:
        if type(seen).__name__ == "Py4JNetworkError" or (isinstance(seen, _LOST_PEER) and _came_from_py4j(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _came_from_py4j(error: BaseException) -> bool:
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_globals.get("__name__", "").startswith("py4j."):
            return True
        frame = frame.tb_next
    return False


def spark_failure(error: Exception, *, master: str, task: str) -> str:
    """Return what went wrong in one line.

    Args:
        error: As pyspark or py4j raised it.
        master: Spark master of the job.
        task: What a task of the job is called.

    Example:
        >>> text = "Job aborted: Task 1 in stage 0.0 failed 4 times, most recent failure: Lost task 1.3 (x): gone."
        >>> spark_failure(RuntimeError(text), master="yarn", task="worker")
        'worker 1 was lost 4 times, most recently by gone; was its host out of memory?'
    """
    if jvm_has_ended(error):
        return JVM_ENDED
    text = str(error)
    if _ENDED.search(text):
        return (
            f"the application was ended from outside: master={master} does not answer, has another"
            " spark.authenticate.secret than this host or another cipher (spark.network.crypto.cipher,"
            " authEngineVersion and enabled must be the same on master, workers and here: docs/cluster.md), or ended"
            " it; Spark's own lines are above"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Of a Python error inside a Java one the cause is the last line of the Python traceback.
    causes = [line for line in lines if _PYTHON_ERROR.match(line)]
    if not causes and (lost := _TASK_LOST.search(text)):
        return f"{task} {lost[1]} was lost {lost[2]} times, most recently by {lost[3]}; was its host out of memory?"
    return (causes or lines or [type(error).__name__])[0]
