"""Pages about runs in Airflow's UI: the plugin that announces them, and the application that serves them."""
