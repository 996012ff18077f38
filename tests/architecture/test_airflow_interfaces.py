"""Private names of Airflow in the code: exactly the table in docs/contributing/airflow_interfaces.md."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.airflow

OPERATORS = ROOT / "deepspark_ops" / "operators"
PUBLIC = re.compile(
    r"airflow\.(sdk(\.exceptions|\.log)?|exceptions|configuration|plugins_manager|listeners|triggers\.base"
    r"|timetables\.(assets|trigger)|providers\.\w+(\.\w+)*"
    r"|api_fastapi\.auth\.managers\.(base_auth_manager|models\.(base_user|resource_details)))"
)
"""Modules of Airflow's public interface: the pages *Public Interface* and *Auth manager* of apache-airflow, and the
providers' own pages."""
PUBLIC_NAMES = {
    f"airflow.api_fastapi.core_api.security.{name}" for name in ("GetUserDep", "get_user", "requires_access_dag")
}
"""Names that Airflow's page *Plugins* tells the authors of plugins to use, in modules that are private otherwise."""


def private_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "airflow":
            is_public = PUBLIC.fullmatch(node.module) is not None
            names = [f"{node.module}.{name.name}" for name in node.names]
            yield from (
                name
                for name in names
                if name not in PUBLIC_NAMES and (not is_public or name.rpartition(".")[2].startswith("_"))
            )
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.partition(".")[0] == "airflow")


def private_overrides(path: Path) -> Iterator[str]:
    module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    for kind in vars(module).values():
        if not inspect.isclass(kind) or kind.__module__ != module.__name__:
            continue
        names = [name for name in vars(kind) if re.match("_[a-z]", name) and name != "_abc_impl"]
        for base in kind.__mro__[1:]:
            if base.__module__.partition(".")[0] == "airflow":
                yield from (f"{base.__name__}.{name}" for name in names if name in vars(base))


def documented() -> dict[str, set[str]]:
    text = (ROOT / "docs" / "contributing" / "airflow_interfaces.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.+) \|$", text, re.MULTILINE)
    assert all(reason.strip() for _, _, reason in rows)
    return {name: set(re.findall(r"`([^`]+)`", paths)) for name, paths, _ in rows}


def test_private_names_of_airflow_are_those_of_the_documented_table() -> None:
    used: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted(OPERATORS.rglob("*.py")):
        for name in (*private_imports(path), *private_overrides(path)):
            used[name].add(path.relative_to(OPERATORS).as_posix())
    assert dict(used) == documented()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("from airflow.models.dag import DagModel", ["airflow.models.dag.DagModel"]),
        ("def f():\n    from airflow.utils import timezone", ["airflow.utils.timezone"]),
        ("import airflow.models", ["airflow.models"]),
        ("from airflow.sdk.definitions.param import ParamsDict", ["airflow.sdk.definitions.param.ParamsDict"]),
        ("from airflow.sdk import DAG, Asset", []),
        (
            "from airflow.api_fastapi.core_api.security import GetUserDep, auth_manager_from_app",
            ["airflow.api_fastapi.core_api.security.auth_manager_from_app"],
        ),
        ("from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook", []),
    ],
)
def test_a_private_import_is_seen_wherever_it_stands(line: str, names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(line + "\n")
    assert list(private_imports(path)) == names
