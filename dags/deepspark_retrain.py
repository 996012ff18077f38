"""Airflow DAG deepspark_retrain: train the model in production further, by time or on new data; keep the better one."""

from deepspark_ops.operators.dags.deepspark_retrain import make_dag

dag = make_dag()
