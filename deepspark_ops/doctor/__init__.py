"""What this host and a cluster offer a run, before one is started: each finding with its remedy.

``spark_job`` asks executors, ``tf_look`` TensorFlow and ``operators/airflow_facts`` Airflow, each in a process of its
own; what they found becomes checks in plain functions.
"""
