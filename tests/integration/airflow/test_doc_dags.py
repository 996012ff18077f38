"""The DAGs in the docs, literally: Airflow parses each block as a file of the DAGs folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.reference.doc_blocks import python_blocks

try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # 3.1
    from airflow.models.dagbag import DagBag

pytestmark = pytest.mark.airflow

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [(page, code) for page in PAGES for code in python_blocks(page) if "DAG(" in code]


def test_the_readme_and_the_page_of_operators_have_a_dag() -> None:
    assert {page.name for page, _ in BLOCKS} >= {"README.md", "operators.md", "notifications.md"}


@pytest.mark.parametrize(("page", "code"), BLOCKS, ids=lambda part: part.name if isinstance(part, Path) else "")
def test_a_dag_of_the_docs_is_parsed(page: Path, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSPARK_ROOT", str(tmp_path))
    file = tmp_path / "from_docs.py"
    file.write_text(code)
    bag = DagBag(file)
    assert bag.import_errors == {}
    (dag,) = bag.dags.values()
    operators = {task.task_type for task in dag.tasks}
    assert operators == {
        f"DeepSpark{stage}Operator" for stage in ("Ingest", "Train", "Evaluate", "Export") if stage in code
    }
    dag.params.validate()
