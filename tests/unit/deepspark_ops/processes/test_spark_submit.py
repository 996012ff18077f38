from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deepspark_ops.config.base import StageConfig
from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.processes import spark_submit
from deepspark_ops.processes.handed_signals import stop_driver
from deepspark_ops.processes.job_log import StageFailed
from deepspark_ops.processes.spark_submit import (
    java_version,
    jvm_of_python_tasks,
    named_data,
    require_java,
    require_spark,
    run_command,
    run_job,
)
from deepspark_ops.processes.versions import installed_versions
from tests.processes import is_alive, wait_until

Lines = list[tuple[int, str]]


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


def test_job_whose_spark_master_is_left_out_runs_in_its_own_process(tmp_path: Path) -> None:
    tmp_path.joinpath("fake_prediction.py").write_text("print('ran')")
    config = PredictConfig(bundle=tmp_path, input=tmp_path / "in.csv", output=tmp_path / "out.parquet")
    lines: Lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        run_job("fake_prediction", config, on_line=lambda *line: lines.append(line))
    assert (config.master, [text for _, text in lines]) == (None, ["ran"])


@pytest.fixture
def _other_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pyspark-client of another version than pyspark's, as pip installs it."""
    metadata = tmp_path / "pyspark_client-4.0.9.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: pyspark-client\nVersion: 4.0.9\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("_other_client")
def test_a_spark_stage_refuses_a_pyspark_client_of_another_version() -> None:
    pyspark = installed_versions("pyspark")["pyspark"]
    with pytest.raises(ConfigError) as caught:
        require_spark()
    assert str(caught.value) == (
        f"pyspark {pyspark} and pyspark-client 4.0.9 overwrite each other's files; install one version of both:"
        " pip install --force-reinstall --no-deps pyspark==4.0.9 pyspark-client==4.0.9"
    )


@pytest.mark.spark
@pytest.mark.usefixtures("_other_client")
def test_a_driver_that_spark_submit_started_refuses_a_pyspark_client_of_another_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from deepspark_ops.processes import spark_context

    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(spark_context, "_launch", lambda conf: pytest.fail("a JVM was started"))
    with pytest.raises(ConfigError, match="overwrite each other's files"):
        spark_context.start_context("local[1]", {}, listen_address="", insecure_network=False)


def test_a_read_that_kills_a_stage_is_reported_with_the_stages_data(tmp_path: Path) -> None:
    tmp_path.joinpath("fake_export.py").write_text(
        "import mmap, os, pathlib\n"
        f"path = pathlib.Path({str(tmp_path / 'data.mdb')!r})\npath.write_bytes(bytes(8192))\n"
        "with path.open('rb') as file:\n"
        "    pages = mmap.mmap(file.fileno(), 8192, access=mmap.ACCESS_READ)\n"
        "os.truncate(path, 4096)\npages[5000]\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        with pytest.raises(StageFailed, match=r"signal 7 \(a bus error: .*; it read run_dir=") as caught:
            run_job("fake_export", ExportConfig(run_dir=tmp_path), on_line=lambda *line: None)
    assert str(tmp_path) in str(caught.value)
    assert not caught.value.is_user_mistake


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (TrainConfig(solver=Path("/s"), run_dir=Path("/r"), dataset=Path("/d")), "dataset=/d, run_dir=/r"),
        (TrainConfig(solver=Path("/s"), run_dir=Path("/r")), "what the nets of /s name, run_dir=/r"),
    ],
)
def test_the_data_of_a_stage_are_its_dataset_or_what_its_nets_name(config: StageConfig, expected: str) -> None:
    assert named_data(config) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = f"import os, time, pathlib; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); time.sleep(600)"
    parent = (
        "import sys; from deepspark_ops.processes.spark_submit import run_command\n"
        f"run_command([sys.executable, '-c', {child!r}], stage='train', on_line=print)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: pid_file.exists() and pid_file.read_text(), "the process id")
        process.send_signal(signal.SIGKILL)
        process.wait()
        pid = int(pid_file.read_text())
        wait_until(lambda: not is_alive(pid), "the end of the process")
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
    assert not is_alive(pids[0])


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


def test_options_of_the_users_jvm_come_last() -> None:
    assert jvm_of_python_tasks({}) == {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}
    users = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=4"}
    assert jvm_of_python_tasks(users) == {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:TieredStopAtLevel=4"}


def test_cluster_masters_keep_their_own_address() -> None:
    assert "SPARK_LOCAL_IP" in spark_submit.job_variables({}, master="local[2]")
    assert "SPARK_LOCAL_IP" not in spark_submit.job_variables({}, master="spark://host:7077")


ANSWERING = """
import os, signal, sys
signals = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("ready", os.getpid(), os.getpgid(0), flush=True)
while (number := signal.sigwait(signals)) == signal.SIGHUP:
    print("snapshot", flush=True)
print("stopping", flush=True)
sys.exit(128 + number)
"""


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], ids=["SIGINT", "SIGTERM"]
)
def test_signals_are_handed_on_to_a_stage_that_answers_them(
    number: signal.Signals, raised: type[BaseException]
) -> None:
    lines: list[str] = []
    answers = {"ready": signal.SIGHUP, "snapshot": number}

    def on_line(level: int, text: str) -> None:
        lines.append(text)
        if (answer := answers.get(text.split()[0])) is not None:
            os.kill(os.getpid(), answer)

    with pytest.raises(raised) as caught:
        run_command([sys.executable, "-c", ANSWERING], stage="train", on_line=on_line, answers_signals=True)
    assert lines[1:] == ["snapshot", "stopping"]
    pid, group = lines[0].split()[1:]
    assert pid == group  # a terminal's Ctrl-C does not reach it a second time
    assert not is_alive(int(pid))
    if raised is SystemExit:
        assert caught.value.code == 143
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_the_third_interrupt_ends_a_stage_that_does_not_answer() -> None:
    deaf = "import os, signal, time; signal.signal(2, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"
    pids: list[int] = []

    def on_line(level: int, text: str) -> None:
        pids.append(int(text))
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_command([sys.executable, "-c", deaf], stage="train", on_line=on_line, answers_signals=True)
    assert not is_alive(pids[0])


DRIVER = """
import pathlib, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("ready", flush=True)
signal.sigwait([signal.SIGTERM])
pathlib.Path(sys.argv[1]).write_text("snapshot")
sys.exit(143)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the driver is found in /proc")
def test_a_driver_below_spark_submit_is_asked_to_end_before_spark_submit_is_killed(tmp_path: Path) -> None:
    application, saved = tmp_path / "spark_job.py", tmp_path / "saved"
    application.write_text(DRIVER)
    submit_code = (
        f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, {str(application)!r}, {str(saved)!r}]))"
    )
    submit = subprocess.Popen([sys.executable, "-c", submit_code], stdout=subprocess.PIPE, text=True)
    try:
        assert submit.stdout is not None
        assert submit.stdout.readline() == "ready\n"
        stop_driver(submit, "/another/spark_job.py", patience_s=0.0)
        assert submit.poll() is None
        stop_driver(submit, str(application), patience_s=60.0)
        assert (submit.poll(), saved.read_text()) == (143, "snapshot")
    finally:
        submit.kill()
        submit.communicate()
