"""The DAG files: a few lines each, because ``deepspark_ops.operators.dags`` builds the DAGs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.errors import ConfigError
from deepspark_ops.run_paths import write_text_whole

DAGS: Final[Mapping[str, str]] = {
    "deepspark_train": "a Caffe solver in; a trained, evaluated and exported model out",
    "deepspark_retrain": "train the model in production further, by time or on new data; keep the better one",
    "deepspark_convert": "a net and weights trained elsewhere in; a checked bundle out; no training",
    "deepspark_compare": "one solver trained in several ways; one table: accuracy, time, bytes",
    "deepspark_clean": "list, or remove, the runs and datasets that are no longer needed",
}
"""Id of a DAG, which is also the name of its file and module -> description."""
_BUILDERS: Final = "deepspark_ops.operators.dags"


def dag_file_text(dag_id: str) -> str:
    """Return the text of a DAG's file. The text contains "Airflow", since Airflow looks for this word in DAG files."""
    return f'''"""Airflow DAG {dag_id}: {DAGS[dag_id]}."""

from {_BUILDERS}.{dag_id} import make_dag

dag = make_dag()
'''


def install_dags(folder: Path) -> list[Path]:
    """Write the DAG files into Airflow's DAGs folder, creating the folder if necessary; return the paths.

    A file of an earlier version is replaced.

    Raises:
        ConfigError: ``folder`` is no folder, or has a foreign file with the same name; nothing is written.
    """
    if folder.exists() and not folder.is_dir():
        msg = f"{folder} is a file; give Airflow's DAGs folder"
        raise ConfigError(msg)
    paths = {folder / f"{dag_id}.py": dag_file_text(dag_id) for dag_id in DAGS}
    for path in paths:
        if path.exists() and _BUILDERS not in regular_text(path, errors="replace"):
            msg = f"{path} is there and is not DeepSpark's; move it, or give another folder"
            raise ConfigError(msg)
    for path, text in paths.items():
        write_text_whole(path, text)
    return list(paths)
