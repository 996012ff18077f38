"""Thin Airflow operators, one per stage."""

from caffe_import.extras import require

for _package in ("airflow", "airflow.providers.apache.spark"):
    require(_package, part=__name__)
