"""The files of the local Airflow, inside a checkout and without a checkout."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name

import pytest

from deepspark_ops.local_airflow.folders import OUTAGE_SETTINGS, LocalFolders
from deepspark_ops.local_airflow.ui import welcome
from tests.paths import ROOT


def test_a_checkout_has_its_own_dags_and_keeps_airflow_inside(tmp_path: Path) -> None:
    folders = LocalFolders.find({"DEEPSPARK_HOME": str(tmp_path)}, tmp_path)
    assert folders == LocalFolders(ROOT, ROOT / ".airflow", ROOT / "dags", ROOT / "plugins")
    assert folders.is_checkout
    moved = LocalFolders.find({"DEEPSPARK_AIRFLOW_HOME": str(tmp_path)}, tmp_path)
    assert (moved.root, moved.airflow_home, moved.is_checkout) == (ROOT, tmp_path, True)


def test_without_a_checkout_everything_is_below_the_present_folder_or_deepspark_home(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages"
    (installed / "dags").mkdir(parents=True)  # somebody else's package of that name
    folders = LocalFolders.find({}, tmp_path, installed)
    home = tmp_path / ".airflow"
    assert folders == LocalFolders(tmp_path, home, home / "dags", home / "plugins")
    assert not folders.is_checkout
    assert LocalFolders.find({"DEEPSPARK_HOME": "/data"}, tmp_path, installed).airflow_home == Path("/data/.airflow")


def test_the_users_settings_of_airflow_are_kept_but_for_its_address(tmp_path: Path) -> None:
    folders = LocalFolders.find({}, tmp_path, tmp_path)
    user_environment = {
        "AIRFLOW__CORE__PARALLELISM": "9",
        "AIRFLOW__API__PORT": "1",
        "AIRFLOW_HOME": "/elsewhere",
        "DEEPSPARK_HOME": "/data",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": "/bin",
    }
    environment = folders.environment(8123, user_environment, log_port=8124)
    assert environment["AIRFLOW__CORE__PARALLELISM"] == "9"
    assert (environment["AIRFLOW__API__PORT"], environment["AIRFLOW__API__HOST"]) == ("8123", "127.0.0.1")
    assert environment["AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT"] == "8124"
    assert resolve_name(environment["AIRFLOW__CORE__HOSTNAME_CALLABLE"])() == "127.0.0.1"
    assert environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:8123/execution/"
    assert environment["AIRFLOW_HOME"] == str(tmp_path / ".airflow")
    assert (environment["DEEPSPARK_ROOT"], environment["DEEPSPARK_HOME"]) == (str(tmp_path), "/data")
    assert environment["PATH"].endswith(":/bin")
    assert "PYTHONDONTWRITEBYTECODE" not in environment


def test_airflow_commands_of_a_shell_read_the_same_dags_and_no_examples(tmp_path: Path) -> None:
    folders = LocalFolders(tmp_path, tmp_path / "home", tmp_path / "dags", tmp_path / "plugins")
    folders.write_settings()  # without a configuration there is nothing to correct
    folders.airflow_home.mkdir()
    config = folders.airflow_home / "airflow.cfg"
    generated = "[core]\ndags_folder = {}\n# Default: True\nload_examples = {}\nplugins_folder = {}\nkey = 1\n"
    config.write_text(generated.format("/home/dags", True, "/home/plugins"))
    folders.write_settings()
    assert config.read_text() == generated.format(tmp_path / "dags", False, tmp_path / "plugins")


def test_the_administrator_is_among_the_users_that_a_person_lists(tmp_path: Path) -> None:
    folders = LocalFolders.find({}, tmp_path, tmp_path)
    name = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"
    for users, expected in (
        ("ada:viewer, bob:user", "admin:admin,ada:viewer,bob:user"),
        ("ada:viewer,admin:viewer", "admin:admin,ada:viewer"),  # we call Airflow as the administrator
        ("admin:admin", "admin:admin"),
    ):
        assert folders.environment(1, {name: users}, log_port=2)[name] == expected
    assert name not in folders.environment(1, {}, log_port=2)  # then airflow.cfg, or Airflow's default, says who


def test_the_settings_bear_an_api_server_that_is_away_for_five_minutes(tmp_path: Path) -> None:
    environment = LocalFolders.find({}, tmp_path, tmp_path).environment(1, {}, log_port=2)
    outage_s = 300.0
    number = {name: float(environment[f"AIRFLOW__{name}"]) for name in OUTAGE_SETTINGS}
    waits = number["WORKERS__EXECUTION_API_RETRIES"] - 1
    shortest = waits * number["WORKERS__EXECUTION_API_RETRY_WAIT_MIN"]  # Airflow draws a wait between the two
    longest = waits * number["WORKERS__EXECUTION_API_RETRY_WAIT_MAX"]
    assert shortest > outage_s
    assert number["SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT"] > longest
    assert number["SCHEDULER__TASK_QUEUED_TIMEOUT"] > longest
    # sdk/execution_api: a token is renewed once a fifth of its time or less is left.
    assert number["EXECUTION_API__JWT_EXPIRATION_TIME"] / 5 > longest


@pytest.mark.parametrize("has_passwords", [True, False])
def test_the_welcome_has_the_password_or_says_that_everyone_is_an_administrator(
    tmp_path: Path, has_passwords: bool
) -> None:
    """With ``AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS`` Airflow writes no passwords."""
    folders = LocalFolders.find({"DEEPSPARK_AIRFLOW_HOME": str(tmp_path)}, tmp_path)
    if has_passwords:
        folders.passwords.write_text('{"admin": "secret"}')
    text = welcome(folders, 8080)
    assert ("password      secret" in text) == has_passwords
    assert ("login         none: everyone is an administrator" in text) == (not has_passwords)
