"""Pages about runs in Airflow's UI: the plugin and the web application."""
