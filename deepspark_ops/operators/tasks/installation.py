"""Folders of this Airflow's runs, datasets and models, and Airflow's address."""

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
    """Return the address of this Airflow, ``[api] base_url`` without the last slash, or nothing."""
    return (conf.get("api", "base_url", fallback="") or "").rstrip("/")


def site_path() -> str:
    """Return the path of this Airflow's ``base_url``, the part after the host, mostly nothing."""
    return urllib.parse.urlsplit(site_url()).path
