"""Airflow plugin of a checkout; an installed package registers the plugin by itself."""

from deepspark_ops.operators.pages.plugin import plugin_of_folder

plugin = plugin_of_folder()
