"""A run's report in Airflow's UI: the plugin that announces the page, and the page."""
