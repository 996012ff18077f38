from __future__ import annotations

import logging

from deepspark_ops.processes.job_log import JobLog, stage_ended

Lines = list[tuple[int, str]]


def read_log(text: str) -> tuple[Lines, JobLog]:
    lines: Lines = []
    log = JobLog(lambda level, line: lines.append((level, line)))
    for line in text.splitlines():
        log.feed(line + "\n")
    return lines, log


def test_each_line_gets_the_level_its_stage_gave_it() -> None:
    lines, _ = read_log("INFO: worker 1 loss=0.5\nWARNING: rate_scale is capped\nDEBUG| more\nplain print\n")
    assert lines == [
        (logging.INFO, "worker 1 loss=0.5"),
        (logging.WARNING, "rate_scale is capped"),
        (logging.DEBUG, "more"),
        (logging.INFO, "plain print"),
    ]


def test_spark_and_traceback_lines_get_levels_and_known_noise_is_dropped() -> None:
    lines, _ = read_log(
        "WARNING: Using incubator modules: jdk.incubator.vector\n"
        "26/11/21 15:48:47 WARN Utils: Your hostname, a, resolves to a loopback address: 127.0.0.1; using b instead\n"
        "26/01/02 03:04:05 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform\n"
        "26/01/02 03:04:05 WARN TaskSetManager: Lost task 0.0\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n'
        "ValueError: no\n"
        "INFO: on we go\n"
    )
    assert [level for level, _ in lines] == [logging.WARNING, *[logging.ERROR] * 3, logging.INFO]
    assert lines[0][1] == "26/01/02 03:04:05 WARN TaskSetManager: Lost task 0.0"


def test_java_frames_are_for_debugging_and_change_no_other_lines_level() -> None:
    lines, _ = read_log(
        "26/11/21 22:49:53 ERROR Executor: Exception in task 1.0 in stage 0.0 (TID 1)\n"
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).\n"
        "\tat org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:1068)\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
        "Caused by: java.io.EOFException\n"
        "\t... 22 more\n"
    )
    error, debug = logging.ERROR, logging.DEBUG
    assert [level for level, _ in lines] == [error, error, debug, debug, error, debug]


def test_last_error_message_is_kept_whole() -> None:
    _, log = read_log(
        'ERROR: first\nERROR: net.prototxt:3:5: unknown field "x"\nERROR|    3 | x: 1\nINFO: bye\nERROR| no\n'
    )
    error = log.failure("train", 2)
    # The last line continues nothing: what came before it was no error.
    assert str(error) == "no"
    _, log = read_log('ERROR: first\nERROR: net.prototxt:3:5: unknown field "x"\nERROR|    3 | x: 1\nINFO: bye\n')
    error = log.failure("train", 2)
    assert str(error) == 'net.prototxt:3:5: unknown field "x"\n   3 | x: 1'
    assert error.is_user_mistake
    assert not log.failure("train", 1).is_user_mistake


def test_failure_without_a_message_says_how_it_ended() -> None:
    _, log = read_log("INFO: half way\n")
    assert (
        str(log.failure("train", 3))
        == "stage train ended with exit code 3 and left no message; its last line: half way"
    )
    assert "signal 9 (killed; was the machine out of memory?)" in str(log.failure("train", -9))
    assert "signal 15 (ended from outside: by a person who stopped the run" in str(log.failure("train", 143))


def test_what_was_ended_on_purpose_is_not_a_failure_of_the_stage() -> None:
    error = stage_ended("train", -9)
    assert str(error) == "stage train was ended: its task received SIGTERM"
    assert not error.is_user_mistake


def test_a_job_that_was_asked_to_end_shows_no_errors_of_spark() -> None:
    lines, log = read_log("")
    log.is_ending = True
    log.feed(
        "26/11/28 12:18:32 ERROR Executor: Exception in task 1.0 in stage 0.0 (TID 1): Python worker exited (crashed)"
    )
    log.feed("INFO: driver snapshot clock=5506")
    assert lines == [(logging.INFO, "driver snapshot clock=5506")]
