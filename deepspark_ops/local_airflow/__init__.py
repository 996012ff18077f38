"""An Airflow on this machine: ``deepspark ui``, ``deepspark demo``, ``deepspark dags install``.

Airflow runs as separate processes; this package does not import Airflow. Code inside Airflow is in ``operators``.
"""
