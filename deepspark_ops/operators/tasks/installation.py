"""Where this Airflow's runs, datasets and models are, and where it is served."""

from __future__ import annotations

import os
import urllib.parse
from pathlib import Path

from airflow.configuration import conf

from deepspark_ops.operators.provider.connection import default_places
from deepspark_ops.operators.tasks.run_plan import Places


def installed_places() -> Places:
    """Return the places of the Airflow whose configuration this process reads.

    The connection ``deepspark_default`` comes before the environment's variables.

    Raises:
        ConfigError: A field of the connection is wrong.
    """
    places = Places.of_dags_folder(Path(conf.get_mandatory_value("core", "dags_folder")), os.environ)
    return places.with_config(default_places())


def site_url() -> str:
    """Return where people reach this Airflow, ``[api] base_url`` without a slash at its end, or nothing."""
    return (conf.get("api", "base_url", fallback="") or "").rstrip("/")


def site_path() -> str:
    """Return the path that this Airflow is served under: what its ``base_url`` has after the host, mostly nothing."""
    return urllib.parse.urlsplit(site_url()).path
