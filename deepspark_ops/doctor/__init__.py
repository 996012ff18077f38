"""Check of this host and a cluster before a run: each finding has a remedy.

``spark_job`` asks executors, ``tf_look`` TensorFlow and ``operators/provider/airflow_facts`` Airflow, each in a
separate process; plain functions convert the facts into checks.
"""
