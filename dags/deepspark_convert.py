"""Airflow DAG deepspark_convert: a net and weights trained elsewhere in; a checked bundle out; no training."""

from deepspark_ops.operators.dags.deepspark_convert import make_dag

dag = make_dag()
