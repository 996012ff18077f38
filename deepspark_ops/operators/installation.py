"""Where this Airflow's runs, datasets and models are."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.configuration import conf

from deepspark_ops.operators.run_plan import Places


def installed_places() -> Places:
    """Return the places of the Airflow whose configuration this process reads."""
    return Places.of_dags_folder(Path(conf.get_mandatory_value("core", "dags_folder")), os.environ)
