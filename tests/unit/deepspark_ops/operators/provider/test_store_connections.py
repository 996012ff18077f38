"""Airflow's connections of object stores as environment variables of a task and of its stage's process."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Connection

from deepspark_ops.errors import ConfigError
from deepspark_ops.operators import DeepSparkExportOperator, DeepSparkTrainOperator
from deepspark_ops.operators.provider.airflow_names import AirflowFailException
from deepspark_ops.operators.provider.store_connections import store_access
from deepspark_ops.operators.tasks import spark_stage
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.operators.tasks.stage_run import StageRun
from deepspark_ops.run_paths import RunPaths
from tests.unit.deepspark_ops.operators.operator_calls import context, execute, operator_of, rendered

pytestmark = pytest.mark.airflow

SECRET, TOKEN = "not/to+be-seen", "nor-this-token"
KEYS = {"login": "AKIA", "password": SECRET}
ENDPOINT = {"endpoint_url": "http://minio:9000", "region_name": "eu-north-1"}
HOST = {
    "AWS_ACCESS_KEY_ID": "of-the-host", "AWS_SECRET_ACCESS_KEY": "of-the-host", "AWS_SESSION_TOKEN": "of-the-host",
    "AWS_ENDPOINT_URL_S3": "http://of-the-host",
}  # fmt: skip


DAG_OF_TEST = DAG("d", schedule=None)


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "AIRFLOW_CONN_"))]:
        monkeypatch.delenv(name)
    for name, value in HOST.items():
        monkeypatch.setenv(name, value)


def connect(monkeypatch: pytest.MonkeyPatch, name: str, conn_type: str, extra: object = None, **fields: object) -> None:
    values = {"conn_type": conn_type, "extra": json.dumps(extra or {}), **fields}
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(values))


def store_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}


def test_an_address_gets_the_default_connection_of_its_store_for_as_long_as_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect(monkeypatch, "aws_default", "aws", ENDPOINT, **KEYS)
    of_connection = {
        "AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-north-1",
        "AWS_DEFAULT_REGION": "eu-north-1", "AWS_ENDPOINT_URL": "http://minio:9000",
    }  # fmt: skip
    with store_access(["list.txt", "s3://bucket/photos"], None) as access:
        assert store_variables() == of_connection
    assert access.connections == ("aws_default",)
    assert store_variables() == HOST
    for texts in (["/data/list.txt"], ["gs://bucket/x"], ["xs3://bucket"]):
        with store_access(texts, None) as access:
            assert (store_variables(), access.connections) == (HOST, ())
    variables: dict[str, str] = {}

    def fail() -> None:
        with store_access(["a.tar,s3a://b/c"], None):
            variables.update(store_variables())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (variables, store_variables()) == (of_connection, HOST)


def test_a_connection_without_credentials_leaves_those_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with store_access(["s3://bucket/x"], None):
        assert store_variables() == HOST
    connect(monkeypatch, "aws_default", "aws", {"region_name": "eu-north-1"})
    with store_access(["s3://bucket/x"], None):
        assert store_variables() == {**HOST, "AWS_REGION": "eu-north-1", "AWS_DEFAULT_REGION": "eu-north-1"}


def test_a_named_connection_takes_the_place_of_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "aws_default", "aws", ENDPOINT, **KEYS)
    connect(monkeypatch, "lake", "aws", {"profile_name": "lake", "service_config": {"s3": ENDPOINT}})
    connect(monkeypatch, "wasb_default", "wasb", login="pets", password=SECRET)
    with store_access(["abfss://c@pets.dfs.core.windows.net/x"], "lake") as access:
        assert store_variables() == {
            "AWS_PROFILE": "lake", "AWS_ENDPOINT_URL": "http://minio:9000", "AZURE_STORAGE_ACCOUNT": "pets",
            "AZURE_STORAGE_KEY": SECRET,
        }  # fmt: skip
    assert access.connections == ("lake", "wasb_default")


def test_a_key_of_google_is_a_file_that_the_user_alone_reads_and_that_goes_with_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect(monkeypatch, "google_cloud_default", "google_cloud_platform", {"keyfile_dict": {"private_key": SECRET}})
    with store_access(["gs://bucket/x"], ""):
        path = Path(os.environ["GOOGLE_APPLICATION_CREDENTIALS"])
        assert json.loads(path.read_text()) == {"private_key": SECRET}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()
    old = {"extra__google_cloud_platform__key_path": "/keys/a.json"}
    connect(monkeypatch, "google_cloud_default", "google_cloud_platform", old)
    with store_access(["gs://bucket/x"], None):
        assert os.environ["GOOGLE_APPLICATION_CREDENTIALS"] == "/keys/a.json"


@pytest.mark.parametrize(
    ("conn_id", "connection", "message"),
    [
        ("gone", None, "^store_conn_id=gone: there is no such connection; it must name an Airflow connection"),
        ("own", ("spark", {}), "^store_conn_id=own: its type is spark; it must name"),
        ("own", ("aws", {"role_arn": "arn:x"}), "^Airflow connection own: role_arn"),
        ("own", ("aws", {"aws_access_key_id": "A"}), "^Airflow connection own: has an access key or"),
        ("own", ("wasb", {"sas_token": SECRET}), "^Airflow connection own: sas_token"),
    ],
)  # fmt: skip
def test_what_the_variables_cannot_say_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, conn_id: str, connection: Any, message: str
) -> None:
    if connection is not None:
        connect(monkeypatch, conn_id, *connection)
    with pytest.raises(ConfigError, match=message) as refused, store_access([], conn_id):
        pass
    assert SECRET not in str(refused.value)


def test_an_extra_that_is_no_json_object_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow 3.1 does not read such a connection from a variable; Airflow's database may hold one."""
    monkeypatch.setattr(Connection, "get", lambda conn_id: Connection(conn_id=conn_id, conn_type="aws", extra="{"))
    with pytest.raises(ConfigError, match="connection own: extra is no JSON object"), store_access([], "own"):
        pass


@pytest.fixture
def locations(tmp_path: Path) -> Places:
    (tmp_path / "s.prototxt").write_text("")
    return Places(tmp_path, tmp_path / "home")


RECORDING_PROGRAM = """#!{python}
import json, os, sys
names = [name for name in os.environ if name.startswith("AWS_")]
seen = dict(environment={{name: os.environ[name] for name in names}}, arguments=sys.argv)
open({output!r}, "w").write(json.dumps(seen))
print("INFO: read")
"""


def seen_by(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def assert_credentials_are_in_the_environment_alone(recorded: dict[str, Any], run: StageRun, log: str) -> None:
    assert recorded["environment"]["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert recorded["environment"]["AWS_SESSION_TOKEN"] == TOKEN
    written = "".join(path.read_text() for path in RunPaths(run.run_dir).stages.rglob("*") if path.is_file())
    assert written
    for secret in (SECRET, TOKEN):
        assert secret not in f"{recorded['arguments']} {written} {log}"


def test_the_process_of_a_stage_gets_the_credentials_by_its_environment_alone(
    locations: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connect(monkeypatch, "lake", "aws", {**ENDPOINT, "aws_session_token": TOKEN}, **KEYS)
    package = locations.root / "seen_stage.py"
    package.write_text(RECORDING_PROGRAM.format(python=sys.executable, output=str(locations.root / "seen.json")))
    monkeypatch.setenv("PYTHONPATH", str(locations.root))
    monkeypatch.setattr(DeepSparkExportOperator, "run_stage", lambda _, config, runner: runner("seen_stage", config))
    monkeypatch.setattr(DeepSparkExportOperator, "result", lambda *_: {})
    run = StageRun(locations.home / "r", None, None)
    run.run_dir.mkdir(parents=True)
    export = operator_of(DeepSparkExportOperator, DAG_OF_TEST, locations, store_conn_id="{{ 'la' }}ke")
    execute(export, context(DAG_OF_TEST, xcom=run.to_xcom()))
    log = capsys.readouterr().out
    assert_credentials_are_in_the_environment_alone(seen_by(locations.root / "seen.json"), run, log)
    assert store_variables() == HOST


def submitted(
    locations: Places, monkeypatch: pytest.MonkeyPatch, master: str, mode: str = "client", **arguments: Any
) -> dict[str, Any]:
    """Train with a spark-submit that writes its arguments and environment."""
    binary = locations.root / "spark-submit"
    binary.write_text(RECORDING_PROGRAM.format(python=sys.executable, output=str(locations.root / "seen.json")))
    binary.chmod(0o755)
    monkeypatch.setattr(spark_stage.StageSubmitHook, "_get_spark_binary_path", lambda _: [str(binary)])
    monkeypatch.setattr(spark_stage, "require_java", lambda: None)
    monkeypatch.setattr(DeepSparkTrainOperator, "result", lambda *_: {})
    connect(monkeypatch, "spark_default", "spark", {"deploy-mode": mode}, host=master)
    run = {"run_dir": str(locations.home / "r"), "dataset": "s3://bucket/sets/pets", "production": None}
    train = operator_of(
        DeepSparkTrainOperator, DAG_OF_TEST, locations, solver="s.prototxt", env_vars={"TEAM": "vision"}, **arguments
    )
    execute(train, context(DAG_OF_TEST, xcom=run))
    return seen_by(locations.root / "seen.json")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the provider closes no pipe
@pytest.mark.parametrize("master", ["local[2]", "yarn", "spark://h"])
def test_spark_submit_gets_the_credentials_by_its_environment_alone(
    locations: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], master: str
) -> None:
    connect(monkeypatch, "aws_default", "aws", {**ENDPOINT, "aws_session_token": TOKEN}, **KEYS)
    recorded = submitted(locations, monkeypatch, master)
    run = StageRun(locations.home / "r", None, None)
    log = capsys.readouterr().out
    assert "Spark-Submit cmd" in log
    assert_credentials_are_in_the_environment_alone(recorded, run, log)
    assert '"dataset": "s3://bucket/sets/pets"' in (RunPaths(run.run_dir).stages / "train.json").read_text()
    is_local = master == "local[2]"
    assert ("executors on other hosts need credentials of their own" in log) is not is_local


@pytest.mark.parametrize(
    ("mode", "arguments"), [("cluster", {}), ("client", {"deploy_mode": "cluster"})], ids=["connection", "argument"]
)
def test_a_driver_on_another_host_gets_no_credentials(
    locations: Places, monkeypatch: pytest.MonkeyPatch, mode: str, arguments: dict[str, str]
) -> None:
    connect(monkeypatch, "aws_default", "aws", ENDPOINT, **KEYS)
    with pytest.raises(AirflowFailException, match=r"^store_conn_id=aws_default: .* deploy mode cluster"):
        submitted(locations, monkeypatch, "yarn", mode, store_conn_id="aws_default", **arguments)
    assert not (locations.root / "seen.json").exists()


def test_a_dataset_in_a_store_stays_an_address_from_task_to_task(locations: Places) -> None:
    run = {"run_dir": str(locations.home / "r"), "dataset": "s3://bucket/sets/pets", "production": None}
    train = rendered(
        operator_of(DeepSparkTrainOperator, DAG_OF_TEST, locations, solver="s.prototxt"), context(DAG_OF_TEST, xcom=run)
    )
    assert train.stage_run({}).to_xcom() == run
