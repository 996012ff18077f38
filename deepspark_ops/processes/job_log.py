"""The log of a stage's process: levels, dropped noise, and the last error message.

A stage writes log lines to stderr as ``LEVEL: text``, further lines of the same message as ``LEVEL| text``. Exit code 0
is success, ``USER_MISTAKE`` a mistake for the user to correct, ``FAILED`` an error, perhaps solved by a retry.
``stage_process`` writes the lines, ``JobLog`` reads them.
"""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Callable

from caffe_import.tensorflow_start import START_LINES
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.run_view.stage_status import ended_text

USER_MISTAKE = 2
"""Exit code of a stage with wrong input; an unchanged repetition fails, too."""
FAILED = 1
LineHandler = Callable[[int, str], None]
"""Takes the level of ``logging`` and the text of one line of a job's output."""

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
_JAVA_FRAME = re.compile(r"\s+at [^\s(]+\(.*\)|\s*\.\.\. \d+ more")
# Every JVM and every TensorFlow process writes these lines; they require no action.
_NOISE = re.compile(
    r"WARNING: Using incubator modules: jdk\.incubator\.vector"
    r"|.*WARN NativeCodeLoader: Unable to load native-hadoop library"
    r"|Using Spark's default log4j profile"
    r"|Setting (?:default|Spark) log level to "
    r"|.*INFO SparkContext: "  # its banner, before it reads spark.log.level
    r"|.*WARN Utils: (?:Your hostname, .* resolves to a loopback address|Set SPARK_LOCAL_IP)"
    r"|.*WARN SparkConf: Note that spark\.local\.dir will be overridden"
    r"|To adjust logging level use "
    r"|" + START_LINES
)


class StageFailed(DeepSparkError):
    """A stage's process ended with an error.

    Attributes:
        exit_code: The process' exit code; negative for a signal.
        is_user_mistake: Whether the user must correct the input; else a retry may succeed.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        """Store the stage's last error message and the exit code."""
        super().__init__(message)
        self.exit_code = exit_code
        self.is_user_mistake = exit_code == USER_MISTAKE


def stage_ended(stage: str, exit_code: int) -> StageFailed:
    """Return the error of a job that its task ended; the job's last message is not the reason."""
    return StageFailed(ended_text(stage), exit_code)


class JobLog:
    """Reads a job's output line by line: levels, noise, the last error message.

    Not thread-safe: use a single reader.

    Attributes:
        is_ending: Whether the job was asked to end. Spark then reports the end of its own processes as errors.
    """

    is_ending = False

    def __init__(self, on_line: LineHandler) -> None:
        """Pass every useful line to ``on_line``."""
        self._on_line = on_line
        self._level = logging.INFO
        self._error: list[str] = []
        self._error_is_open = False
        self._last_line = ""

    def feed(self, raw: str) -> None:
        """Process a line, with or without the newline."""
        line = raw.rstrip()
        if not line or _NOISE.match(line) or (self.is_ending and _SPARK_LINE.fullmatch(line)):
            return
        if _JAVA_FRAME.fullmatch(line):  # thirty frames for every killed worker
            self._on_line(logging.DEBUG, line)
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
        """Return the level of a line from outside the stages: Spark's mark, a traceback, else plain output."""
        if match := _SPARK_LINE.fullmatch(line):
            return _SPARK_LEVELS[match[1]]
        if line.startswith(("Traceback (most recent call last)", 'Exception in thread "')):
            return logging.ERROR
        is_continuation = line.startswith((" ", "\t")) or self._level >= logging.ERROR
        return self._level if is_continuation else logging.INFO

    def failure(self, stage: str, exit_code: int, *, reads: str = "") -> StageFailed:
        """Return the error of a job with this ``exit_code``: the stage's last message, else the kind of end.

        Args:
            stage: Name of the stage.
            exit_code: The process' exit code; negative for a signal.
            reads: Data of the stage, for the message of a read that killed the process.
        """
        if self._error:
            return StageFailed("\n".join(self._error), exit_code)
        how = f"exit code {exit_code}"
        if exit_code < 0 or exit_code > 128:
            number = -exit_code if exit_code < 0 else exit_code - 128
            how = f"signal {number}"
            if number == signal.SIGKILL:
                how += " (killed; was the machine out of memory?)"
            elif number == signal.SIGTERM:
                how += " (ended from outside: by a person who stopped the run, a time limit, or the host)"
            elif number == signal.SIGBUS:
                how += (
                    f" (a bus error: a file that it read, mostly an LMDB, was cut short meanwhile, or its disk fails;"
                    f" it read {reads or 'what its config names'})"
                )
        last = f"; its last line: {self._last_line}" if self._last_line else ""
        return StageFailed(f"stage {stage} ended with {how} and left no message{last}", exit_code)
