"""Thin Airflow operators, one per stage."""

from caffe_import.extras import require

require("airflow", "airflow.providers.apache.spark", part=__name__)
