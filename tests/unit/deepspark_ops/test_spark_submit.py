from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deepspark_ops import spark_submit
from deepspark_ops.config import ExportConfig
from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.spark_submit import (
    JobLog,
    StageFailed,
    file_trouble,
    java_version,
    require_java,
    run_command,
    run_job,
    stage_main,
)

Lines = list[tuple[int, str]]


def read(text: str) -> tuple[Lines, JobLog]:
    lines: Lines = []
    log = JobLog(lambda level, line: lines.append((level, line)))
    for line in text.splitlines():
        log.feed(line + "\n")
    return lines, log


def test_each_line_gets_the_level_its_stage_gave_it() -> None:
    lines, _ = read("INFO: worker 1 loss=0.5\nWARNING: rate_scale is capped\nDEBUG| more\nplain print\n")
    assert lines == [
        (logging.INFO, "worker 1 loss=0.5"),
        (logging.WARNING, "rate_scale is capped"),
        (logging.DEBUG, "more"),
        (logging.INFO, "plain print"),
    ]


def test_spark_and_traceback_lines_get_levels_and_known_noise_is_dropped() -> None:
    lines, _ = read(
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


def test_last_error_message_is_kept_whole() -> None:
    _, log = read(
        'ERROR: first\nERROR: net.prototxt:3:5: unknown field "x"\nERROR|    3 | x: 1\nINFO: bye\nERROR| no\n'
    )
    error = log.failure("train", 2)
    # The last line continues nothing: what came before it was no error.
    assert str(error) == "no"
    _, log = read('ERROR: first\nERROR: net.prototxt:3:5: unknown field "x"\nERROR|    3 | x: 1\nINFO: bye\n')
    error = log.failure("train", 2)
    assert str(error) == 'net.prototxt:3:5: unknown field "x"\n   3 | x: 1'
    assert error.is_user_mistake
    assert not log.failure("train", 1).is_user_mistake


def test_failure_without_a_message_says_how_it_ended() -> None:
    _, log = read("INFO: half way\n")
    assert (
        str(log.failure("train", 3))
        == "stage train ended with exit code 3 and left no message; its last line: half way"
    )
    assert "signal 9 (killed; was the machine out of memory?)" in str(log.failure("train", -9))
    assert "signal 15" in str(log.failure("train", 143))


def run_python(code: str) -> Lines:
    lines: Lines = []
    run_command([sys.executable, "-c", code], stage="train", on_line=lambda level, line: lines.append((level, line)))
    return lines


STAGE = "import sys; from deepspark_ops.spark_submit import stage_main; from deepspark_ops.errors import *\n"


def test_stage_process_and_parent_agree_on_levels_messages_and_exit_codes() -> None:
    code = STAGE + (
        "import logging\n"
        "def run(path):\n"
        "    logging.getLogger('deepspark_ops.train').warning('two\\nlines')\n"
        "    raise ConfigError('n_workers=0: at least 1\\nallowed: more')\n"
        "sys.exit(stage_main(run, ['config.json']))"
    )
    lines: Lines = []
    with pytest.raises(StageFailed) as caught:
        run_command([sys.executable, "-c", code], stage="train", on_line=lambda *line: lines.append(line))
    assert str(caught.value) == "n_workers=0: at least 1\nallowed: more"
    assert caught.value.exit_code == 2
    assert lines[:2] == [(logging.WARNING, "two"), (logging.WARNING, "lines")]


def test_unexpected_exception_shows_its_traceback_and_ends_with_its_message() -> None:
    code = STAGE + "def run(path):\n    [][0]\nsys.exit(stage_main(run, ['config.json']))"
    lines: Lines = []
    with pytest.raises(StageFailed, match="IndexError: list index out of range") as caught:
        run_command([sys.executable, "-c", code], stage="train", on_line=lambda *line: lines.append(line))
    assert caught.value.exit_code == 1
    assert any("Traceback" in text for _, text in lines)
    assert lines[-1] == (logging.ERROR, "IndexError: list index out of range")


def test_path_that_cannot_be_written_is_told_without_a_traceback() -> None:
    code = STAGE + "def run(path):\n    open('/dev/null/metrics.json', 'w')\nsys.exit(stage_main(run, ['config.json']))"
    lines: Lines = []
    with pytest.raises(StageFailed, match=r"/dev/null/metrics\.json: Not a directory; give a path that can") as caught:
        run_command([sys.executable, "-c", code], stage="evaluate", on_line=lambda *line: lines.append(line))
    assert caught.value.exit_code == 2
    assert len(lines) == 1


def test_full_disk_may_be_tried_again() -> None:
    found = file_trouble(OSError(errno.ENOSPC, "No space left on device"))
    assert found == (
        1,
        "a file: No space left on device; make room there, or give a folder on another disk, and run it again",
    )
    assert file_trouble(OSError(errno.ECONNRESET, "Connection reset by peer")) is None


@pytest.mark.parametrize(("error", "code"), [(ConfigError("x"), 2), (TrainingFailed("x"), 1), (StageFailed("x", 2), 2)])
def test_exit_code_tells_whether_the_user_must_act(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)  # leaves pytest's handlers alone

    def run(path: Path) -> None:
        raise error

    assert stage_main(run, ["config.json"]) == code
    assert stage_main(run, []) == 2


def test_job_gets_its_config_and_this_interpreter(tmp_path: Path) -> None:
    module = tmp_path / "fake_stage.py"
    module.write_text(
        "import os, sys, pathlib; print(os.environ['PYSPARK_PYTHON']); print(pathlib.Path(sys.argv[1]).read_text())"
    )
    lines: Lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        run_job("fake_stage", ExportConfig(run_dir=tmp_path), on_line=lambda *line: lines.append(line))
    text = "\n".join(line for _, line in lines)
    assert text.startswith(sys.executable + "\n{")
    assert ExportConfig.model_validate_json(text.partition("\n")[2]) == ExportConfig(run_dir=tmp_path)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_for(condition: object, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = f"import os, time, pathlib; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); time.sleep(600)"
    parent = (
        "import sys; from deepspark_ops.spark_submit import run_command\n"
        f"run_command([sys.executable, '-c', {child!r}], stage='train', on_line=print)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: pid_file.exists() and pid_file.read_text())
        process.send_signal(signal.SIGKILL)
        process.wait()
        pid = int(pid_file.read_text())
        wait_for(lambda: is_gone(pid))
    finally:
        process.kill()


def test_exception_in_the_parent_ends_the_child() -> None:
    pids: list[int] = []

    def on_line(level: int, text: str) -> None:
        pids.append(int(text))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_command(
            [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"],
            stage="train",
            on_line=on_line,
        )
    assert is_gone(pids[0])


def fake_java(folder: Path, version: str) -> dict[str, str]:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-10-15' >&2\n")
    binary.chmod(0o755)
    return {"JAVA_HOME": str(folder), "PATH": os.environ["PATH"]}


def test_java_is_required_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no Java found by PATH.*openjdk-17-jre-headless"):
        require_java({"PATH": str(tmp_path)})
    with pytest.raises(ConfigError, match="is Java 11; Spark needs 17 or newer"):
        require_java(fake_java(tmp_path / "old", "11.0.2"))
    new = fake_java(tmp_path / "new", "21.0.1")
    assert require_java(new) == tmp_path / "new" / "bin" / "java"


def test_java_version_of_unknown_text_is_none() -> None:
    assert java_version("Segmentation fault") is None


def test_cluster_masters_keep_their_own_address() -> None:
    assert "SPARK_LOCAL_IP" in spark_submit.job_variables({}, master="local[2]")
    assert "SPARK_LOCAL_IP" not in spark_submit.job_variables({}, master="spark://host:7077")
