"""Conf of each DAG's example: LeNet on handwritten digits, in ``examples/digits/*.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from caffe_import.file_access.regular_file import regular_text

_FOLDER: Final = Path("examples", "digits")
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_FILES: Final = {"deepspark_retrain": "retrain.json", "deepspark_compare": "compare.json"}
_FILE: Final = "run.json"


def example_file(dag_id: str, root: Path) -> Path:
    """Return the file with the conf of a DAG's example; the default is the file of deepspark_train.

    Args:
        dag_id: Id of the DAG.
        root: Base of a run's relative paths. Without ``examples/digits``, as outside a checkout, the file inside the
            package is returned.
    """
    return _base(root) / _FOLDER / _FILES.get(dag_id, _FILE)


def example_conf(dag_id: str, root: Path) -> dict[str, Any]:
    """Return the conf of a DAG's example, to be triggered where relative paths start from ``root``.

    Args:
        dag_id: Id of the DAG.
        root: As in ``example_file``. The paths of the example's files are absolute where the package's are used.
    """
    conf: dict[str, Any] = json.loads(regular_text(example_file(dag_id, root)))
    if _base(root) == root:
        return conf
    return {name: _absolute(value) for name, value in conf.items()}


def _base(root: Path) -> Path:
    return root if (root / _FOLDER).is_dir() else _PACKAGE


def _absolute(value: Any) -> Any:
    is_example_path = isinstance(value, str) and Path(value).is_relative_to(_FOLDER)
    return str(_PACKAGE / value) if is_example_path else value
