"""The checks of the doctor, the checks that a failure leaves out, output and exit code."""

from __future__ import annotations

import json
import platform
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.config.commands.doctor import DoctorConfig
from deepspark_ops.doctor import children, run
from deepspark_ops.doctor.airflow_checks import absent_check, airflow_checks
from deepspark_ops.doctor.check import Check
from deepspark_ops.doctor.children import Answer, ask_module
from deepspark_ops.doctor.executor_look import look
from deepspark_ops.doctor.meeting import Meeting, visit
from tests.reference.command_line import invoke
from tests.unit.deepspark_ops.doctor.test_spark_checks import FACTS

TENSORFLOW = {"version": "2.21.0", "device": "CPU, 2 threads", "why_no_gpu": "", "is_right": True}
AIRFLOW = {
    "version": "3.3.2",
    "executor": "LocalExecutor",
    "dags_folder": "/dags",
    "has_dags_folder": True,
    "dags": ["deepspark_train.py"],
    "has_plugin": True,
    "plugins_folder": "/plugins",
    "database_error": "",
    "connection": {"master": "local[2]"},
}


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Replace the processes by planned answers; ``asked`` has the masters of started jobs."""
    executors = [{**executor, "python": platform.python_version()} for executor in FACTS["executors"]]
    spark = Answer({**FACTS, "executors": executors})
    answers: dict[str, Any] = {"tensorflow": Answer(TENSORFLOW), "spark": spark, "asked": []}

    def ask_spark(config: DoctorConfig, master: str, **_: object) -> Answer:
        answers["asked"].append(master)
        return answers["spark"]

    monkeypatch.setattr(run, "ask_module", lambda module, *_, **__: answers["tensorflow"])
    monkeypatch.setattr(run, "ask_spark", ask_spark)
    monkeypatch.setattr(run, "absent_check", lambda *_: Check("airflow", True, "not installed"))
    return answers


def doctor_checks(*arguments: str) -> tuple[int, dict[str, Check]]:
    result = invoke("doctor", "--json", *arguments)
    checks = [Check(**plain) for plain in json.loads(result.stdout)["checks"]]
    return result.exit_code, {check.name: check for check in checks}


def test_a_fit_host_ends_with_0_and_a_master_that_is_not_there_with_1(faked: dict[str, Any]) -> None:
    code, checks = doctor_checks("--master", "local[2]")
    assert (code, [check for check in checks.values() if not check.ok]) == (0, [])
    assert faked["asked"] == ["local[2]"]
    with socket.create_server(("127.0.0.1", 0)) as was_there:
        port = was_there.getsockname()[1]
    code, checks = doctor_checks("--master", f"spark://127.0.0.1:{port}")
    assert code == 1
    assert not checks[f"master 127.0.0.1:{port}"].ok
    assert checks["spark job"].remedy == "correct what failed above"
    assert faked["asked"] == ["local[2]"], "no job for a master that does not answer"


def test_a_job_that_hangs_or_is_refused_is_one_finding(faked: dict[str, Any]) -> None:
    faked["spark"] = Answer({}, "no answer within 300 s", ("WARN: waiting",))
    code, checks = doctor_checks()
    assert (code, checks["spark job"].detail) == (1, "no answer within 300 s")
    assert "WARN: waiting" in checks["spark job"].remedy
    faked["spark"] = Answer({}, "master=spark://a:7077: names no secret; put it there")
    assert doctor_checks()[1]["spark job"].remedy == "put it there"


def test_a_tensorflow_that_dies_is_a_finding(faked: dict[str, Any]) -> None:
    faked["tensorflow"] = Answer({}, "ended by signal 4")
    code, checks = doctor_checks()
    assert (code, checks["tensorflow devices"].detail) == (1, "ended by signal 4")
    assert "AVX" in checks["tensorflow devices"].remedy


def test_the_table_has_the_remedies_and_counts(faked: dict[str, Any]) -> None:
    faked["spark"] = Answer({**FACTS, "error": "lost [x]"})
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "lost [x]" in result.stdout
    assert "-> Spark's own lines" in result.stdout
    assert "1 failed" in result.stdout.splitlines()[-1]


def test_missing_airflow_fails_only_a_requested_check(tmp_path: Path) -> None:
    environment = {"AIRFLOW_HOME": str(tmp_path)}
    assert absent_check(environment, None) == Check(
        "airflow", True, f"installed, and not set up in {tmp_path}: every stage runs by command"
    )
    check = absent_check(environment, "spark_default")
    assert check is not None
    assert (check.ok, "AIRFLOW_HOME" in check.remedy) == (False, True)
    (tmp_path / "airflow.cfg").write_text("")
    assert absent_check(environment, None) is None


@pytest.mark.parametrize(
    ("changes", "name", "ok"),
    [
        ({"database_error": "/a.db is not there", "connection": None}, "airflow database", False),
        ({"has_dags_folder": False}, "airflow DAGs", False),
        ({"dags": ["deepspark_clean.py"]}, "airflow DAGs", False),
        ({"has_plugin": False}, "airflow plugin", True),
        ({"connection": None}, "connection spark_default", True),
    ],
)
def test_what_airflow_lacks_has_a_remedy(changes: dict[str, Any], name: str, ok: bool) -> None:
    assert all(check.ok and not check.remedy for check in airflow_checks(AIRFLOW, "spark_default"))
    checks = {check.name: check for check in airflow_checks({**AIRFLOW, **changes}, "spark_default")}
    assert [check.name for check in checks.values() if check.remedy] == [name]
    assert checks[name].ok == ok


@pytest.mark.slow  # starts processes
def test_a_process_that_answers_dies_or_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, code in (
        ("answers", "print('x'); print('{\"a\": 1}')"),
        ("dies", "import os; os.kill(os.getpid(), 4)"),
        ("fails", "raise SystemExit('no such thing')"),
        ("hangs", "import signal; signal.pause()"),
    ):
        (tmp_path / f"{name}_so.py").write_text(code)
    environment = {"PYTHONPATH": str(tmp_path)}
    assert ask_module("answers_so", timeout_s=60, environment=environment).facts == {"a": 1}
    assert ask_module("dies_so", timeout_s=60, environment=environment).problem == "ended by signal 4"
    assert (
        ask_module("fails_so", timeout_s=60, environment=environment).problem == "ended with exit code 1: no such thing"
    )
    assert ask_module("hangs_so", timeout_s=1.5, environment=environment).problem == "no answer within 1.5 s"
    assert "PYSPARK_GATEWAY_PORT" not in children.own_environment()
    assert sys.executable


def test_executors_meet_the_driver_by_its_token_alone(tmp_path: Path) -> None:
    (tmp_path / "marker").touch()
    with Meeting("127.0.0.1", 0) as meeting:
        offset, error = visit(*meeting.addresses[0], meeting.token)
        assert abs(offset) <= error + 0.05
        with pytest.raises(OSError, match="without an answer"):
            visit(*meeting.addresses[0], bytes(32))
        fine = look(meeting.addresses, meeting.token, str(tmp_path), "marker")
        assert (fine["unreachable"], fine["home"]) == ("", "")
        assert look(meeting.addresses, meeting.token, str(tmp_path), "none")["home"].startswith("does not see")
        assert look(meeting.addresses, meeting.token, str(tmp_path / "none"), "x")["home"] == "is not there"
    assert look(meeting.addresses, meeting.token, str(tmp_path), "marker")["unreachable"] == "Connection refused"


def test_an_executor_names_the_unreachable_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with Meeting("127.0.0.1", 0, 0) as meeting:
        assert len({port for _, port in meeting.addresses}) == 2
        assert look(meeting.addresses, meeting.token, str(tmp_path), "marker")["unreachable"] == ""
        addresses = [meeting.addresses[0], ("127.0.0.1", port)]
        reason = look(addresses, meeting.token, str(tmp_path), "marker")["unreachable"]
    assert reason == f"port {port}: Connection refused"
