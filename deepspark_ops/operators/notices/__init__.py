"""Notifications of a run, by the installation's notifiers of Airflow."""
