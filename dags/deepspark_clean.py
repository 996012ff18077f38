"""Airflow DAG deepspark_clean: list, or remove, the runs and datasets that are no longer needed."""

from deepspark_ops.operators.dags.deepspark_clean import make_dag

dag = make_dag()
