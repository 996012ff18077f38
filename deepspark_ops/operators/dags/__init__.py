"""The DAGs, a builder per file; the files in Airflow's DAGs folder (``local_airflow/dag_files.py``) call them."""
