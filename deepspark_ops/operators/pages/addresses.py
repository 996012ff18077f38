"""Where the pages are, and the file of a run that an address means. No framework."""

from __future__ import annotations

import re
import urllib.parse
from pathlib import Path
from typing import Final

from deepspark_ops.operators.run_addresses import URL_PREFIX as URL_PREFIX
from deepspark_ops.operators.run_addresses import answer_url as answer_url
from deepspark_ops.operators.run_addresses import run_url as run_url
from deepspark_ops.operators.run_plan import Places

RUNS_URL: Final = f"{URL_PREFIX}/runs"
MODELS_URL: Final = f"{URL_PREFIX}/models"
DATASETS_URL: Final = f"{URL_PREFIX}/datasets"
_DAG_ID = re.compile(r"\w[\w.-]*")


def model_url(name: str) -> str:
    """Return the path of a model's page."""
    return f"{MODELS_URL}/{urllib.parse.quote(name, safe='')}"


def file_url(dag_id: str, run_id: str, name: str) -> str:
    """Return the path under which a file of a run is fetched; ``name`` is that of a ``RunFile``."""
    return run_url(dag_id, run_id, f"files/{urllib.parse.quote(name)}")


def dataset_url(name: str) -> str:
    """Return the path of the page of a dataset."""
    return f"{DATASETS_URL}/{urllib.parse.quote(name, safe='')}"


def find_run(places: Places, dag_id: str, run_id: str) -> Path | None:
    """Return where a run's folder is or would be; None for an address that would leave the folder of runs."""
    if not _DAG_ID.fullmatch(dag_id):
        return None
    runs = (places.home / "runs").resolve()
    run = places.run_folder(dag_id, run_id).resolve()
    return run if run.is_relative_to(runs) and run not in (runs, runs / dag_id) else None
