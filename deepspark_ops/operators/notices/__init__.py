"""Notifications: what a run tells by notifiers of Airflow that the installation names."""
