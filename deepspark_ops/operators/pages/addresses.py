"""Addresses of the pages, and the run's file for an address. No framework."""

from __future__ import annotations

import re
import urllib.parse
from pathlib import Path
from typing import Final

from deepspark_ops.operators.tasks.run_addresses import URL_PREFIX as URL_PREFIX
from deepspark_ops.operators.tasks.run_addresses import answer_url as answer_url
from deepspark_ops.operators.tasks.run_addresses import dag_run_url as dag_run_url
from deepspark_ops.operators.tasks.run_addresses import run_api_url as run_api_url
from deepspark_ops.operators.tasks.run_addresses import run_url as run_url
from deepspark_ops.operators.tasks.run_plan import Places, is_folder_name
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.trials.plan import trial_run_id

RUNS_URL: Final = f"{URL_PREFIX}/runs"
MODELS_URL: Final = f"{URL_PREFIX}/models"
DATASETS_URL: Final = f"{URL_PREFIX}/datasets"
_DAG_ID = re.compile(r"\w[\w.-]*")


def model_url(name: str) -> str:
    """Return the path of a model's page."""
    return f"{MODELS_URL}/{urllib.parse.quote(name, safe='')}"


def file_url(dag_id: str, run_id: str, name: str) -> str:
    """Return the path for the download of a run's file; ``name`` is the name of a ``RunFile``."""
    return run_url(dag_id, run_id, f"files/{urllib.parse.quote(name)}")


def dataset_url(name: str) -> str:
    """Return the path of the page of a dataset."""
    return f"{DATASETS_URL}/{urllib.parse.quote(name, safe='')}"


def mapped_run_id(run_id: str, map_index: str | int) -> str:
    """Return the run id of a mapped task's trial; for any other task the DAG run's id.

    Args:
        run_id: Of the DAG run.
        map_index: Of the task; Airflow leaves ``{MAP_INDEX}`` in the address for one that is not mapped.

    Example:
        >>> mapped_run_id("manual__2026", "2"), mapped_run_id("manual__2026", -1), mapped_run_id("r", "{MAP_INDEX}")
        ('manual__2026__trial_03', 'manual__2026', 'r')
    """
    text = str(map_index)
    return trial_run_id(run_id, int(text) + 1) if text.isdecimal() and len(text) < 5 else run_id


def find_run(installation: Places, dag_id: str, run_id: str) -> Path | None:
    """Return the path of a run's folder, present or not; None for a path outside the folder of runs.

    A link may lead to an allowed root (``run_link``).

    For a run that Airflow has deleted, the address has the folder's name instead of the run id.
    """
    if not _DAG_ID.fullmatch(dag_id):
        return None
    run = installation.run_folder(dag_id, run_id)
    if not run.is_dir() and is_folder_name(run_id):
        run = run.with_name(run_id)
    run = run.resolve()
    return run if installation.may_show(run) else None


def evaluation_folder(run_dir: Path) -> Path | None:
    """Return the folder of a run's evaluation; None without a folder, or for a path outside the run's folder."""
    folder = RunPaths(run_dir).evaluation
    return folder if folder.is_dir() and folder.resolve().is_relative_to(run_dir.resolve()) else None
