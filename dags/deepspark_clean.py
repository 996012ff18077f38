"""Airflow DAG deepspark_clean: list, or remove, the runs and datasets that nothing needs any more."""

from deepspark_ops.operators.dags.deepspark_clean import make_dag

dag = make_dag()
