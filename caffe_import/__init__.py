"""Knows Caffe's files, layers and numbers. No Airflow, no Spark, no pipeline."""
