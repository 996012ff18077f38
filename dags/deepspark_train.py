"""Airflow DAG deepspark_train: a Caffe solver in; a trained, evaluated and exported model out."""

from deepspark_ops.operators.dags.deepspark_train import make_dag

dag = make_dag()
