"""Airflow lists DeepSpark among the providers of an installed package, and knows the connection type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import airflow
import jsonschema
import pytest
from airflow.sdk import DAG
from airflow.sdk.module_loading import import_string

from deepspark_ops.errors import ConfigError
from deepspark_ops.operators import DeepSparkPromoteOperator
from deepspark_ops.operators.pages.plugin import DeepSparkPlugin
from deepspark_ops.operators.promote import promote_config
from deepspark_ops.operators.provider import get_provider_info
from deepspark_ops.operators.provider.connection import DeepSparkHook
from deepspark_ops.operators.tasks.installation import installed_places
from tests.paths import ROOT

pytestmark = pytest.mark.airflow


MANAGER = """
import json
from airflow.providers_manager import ProvidersManager
manager = ProvidersManager()
listed = manager.providers["deepspark"]
notifiers = [str(name) for name in manager.notification]
print(json.dumps([listed.version, listed.data["description"], manager.extra_links_class_names, notifiers]))
"""


def test_airflow_lists_the_provider_of_an_installed_package_with_its_links_and_its_notifier(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", MANAGER], env=installed_package(tmp_path), capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip
    listed_version, description, links, notifiers = json.loads(completed.stdout.splitlines()[-1])
    assert listed_version == "9.9"
    assert description.startswith("Caffe nets trained by Spark workers")
    # A class that Airflow cannot import is left out, with a warning.
    assert "deepspark_ops.operators.notices.notifier.DeepSparkNotifier" in notifiers
    registered = {f"{type(link).__module__}.{type(link).__name__}" for link in DeepSparkPlugin.operator_extra_links}
    assert {name for name in links if name.startswith("deepspark_ops.")} == registered
    assert len(registered) == 6
    for name in registered:
        assert import_string(name)().operators, "Airflow makes a link without arguments"


def installed_package(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process that sees an installed package with entry points."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    group = "apache_airflow_provider"
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in project["entry-points"][group].items())]
    metadata = tmp_path / "deepspark-9.9.dist-info"  # what an installation has beside the package
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspark\nVersion: 9.9\n")
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return {**os.environ, "AIRFLOW_HOME": str(tmp_path / "airflow"), "PYTHONPATH": f"{tmp_path}:{ROOT}"}


def test_every_module_that_the_provider_names_has_an_operator() -> None:
    (operators,) = get_provider_info()["operators"]
    for name in operators["python-modules"]:
        assert any(name.startswith("DeepSpark") for name in vars(import_module(name)))


def test_the_connections_page_has_a_form_with_the_folders_of_an_installation() -> None:
    """Compare with Airflow's schema of provider information, and with Airflow's own reading."""
    info = get_provider_info()
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    assert set(info) <= set(schema["properties"])
    (connection,) = info["connection-types"]
    provider_schema = json.loads((Path(airflow.__file__).parent / "provider.yaml.schema.json").read_text())
    jsonschema.validate([connection], provider_schema["properties"]["connection-types"])
    assert list(connection["conn-fields"]) == ["home", "models", "allowed_roots"]
    hook = import_string(connection["hook-class-name"])
    assert (hook.conn_type, hook.hook_name) == (connection["connection-type"], connection["hook-name"])
    for kind in ("operators", "hooks", "triggers"):
        for row in info[kind]:
            for name in row["python-modules"]:
                import_module(name)


def connect(monkeypatch: pytest.MonkeyPatch, extra: object, conn_type: str = "deepspark") -> None:
    text = extra if isinstance(extra, str) else json.dumps(extra)
    monkeypatch.setenv("AIRFLOW_CONN_DEEPSPARK_DEFAULT", json.dumps({"conn_type": conn_type, "extra": text}))


def test_the_connection_says_where_runs_and_models_are_and_the_environment_says_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPSPARK_HOME", "/by/environment")
    monkeypatch.setenv("DEEPSPARK_ALLOWED_ROOTS", "/pets")
    assert (installed_places().home, installed_places().models) == (
        Path("/by/environment"),
        Path("/by/environment/models"),
    )
    connect(monkeypatch, {"home": str(tmp_path), "models": "", "allowed_roots": None})
    locations = installed_places()
    assert (locations.home, locations.models, locations.allowed_roots) == (
        tmp_path,
        tmp_path / "models",
        (Path("/pets"),),
    )
    connect(monkeypatch, {"models": "/shared/models", "allowed_roots": "/cats:/dogs"})
    locations = installed_places()
    assert (locations.home, locations.models) == (Path("/by/environment"), Path("/shared/models"))
    assert locations.allowed_roots == (Path("/cats"), Path("/dogs"))
    with DAG("d", schedule=None):
        promote = DeepSparkPromoteOperator(task_id="promote", run="r", model="digits")
        other = DeepSparkPromoteOperator(task_id="other", run="r", model="digits", models="mine")
    assert promote_config(promote).models == Path("/shared/models")
    assert promote_config(other).models == Path("/by/environment/mine")


@pytest.mark.parametrize(
    ("extra", "conn_type", "message"),
    [
        ({"hme": "/x"}, "deepspark", "Airflow connection deepspark_default: hme='/x': "),
        ({"home": "x"}, "deepspark", "deepspark_default: home='x': .*x is no absolute path"),
        ("{", "deepspark", "deepspark_default: extra is no JSON: "),
        ("[]", "deepspark", "deepspark_default: extra is no JSON object, e.g. "),
        ({}, "spark", "deepspark_default: its type is spark; it must be deepspark"),
    ],
)
def test_a_wrong_connection_is_refused_with_its_name(
    extra: object, conn_type: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, extra, conn_type)
    with pytest.raises(ConfigError, match=message):
        installed_places()


def test_the_button_of_the_page_says_which_folder_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, {"home": str(tmp_path), "models": str(tmp_path / "no")})
    assert DeepSparkHook().test_connection() == (False, f"no such folder: {tmp_path / 'no'}")
    connect(monkeypatch, {"home": str(tmp_path)})
    assert DeepSparkHook().test_connection() == (True, "all folders are there")
