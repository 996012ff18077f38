"""Airflow DAG deepspark_compare: one solver trained in several ways; one table: accuracy, time, bytes."""

from deepspark_ops.operators.dags.deepspark_compare import make_dag

dag = make_dag()
