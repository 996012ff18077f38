"""Thin Airflow operators, one per stage."""
