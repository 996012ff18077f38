"""An Airflow of one's own on this machine: ``deepspark ui``, ``deepspark demo``, ``deepspark dags install``.

Airflow runs as processes of its own; nothing here imports it. What runs inside Airflow is in ``operators``.
"""
