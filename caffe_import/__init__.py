"""Knows Caffe: its files, its layers, its numbers. No Airflow, no Spark, no pipeline."""
