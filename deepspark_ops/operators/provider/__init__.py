"""DeepSpark in Airflow's list of providers, by the entry point ``apache_airflow_provider``."""

from __future__ import annotations

from typing import Any, Final

_LINKS: Final = ("TrainingLink", "ReportLink", "RunLink", "BundleLink", "ModelLink", "SparkUiLink")
"""Classes of the buttons on tasks; a test compares them with the plugin."""


def get_provider_info() -> dict[str, Any]:
    """Return the description of the provider, in Airflow's schema of provider information.

    The description lacks the pages' plugin: an entry point registers the plugin, and Airflow reports a second
    registration. The description names the extra links for ``airflow providers links``; the plugin alone registers the
    links.
    """
    from deepspark_ops import operators
    from deepspark_ops.config.places import PlacesConfig

    modules = [f"{operators.__name__}.{name}" for name in operators.OPERATOR_MODULES]
    fields = {
        name: {"label": field.title, "description": field.description, "schema": {"type": ["string", "null"]}}
        for name, field in PlacesConfig.model_fields.items()
    }
    return {
        "package-name": "deepspark",
        "name": "DeepSpark",
        "description": "Caffe nets trained by Spark workers: operators for check, ingest, train, evaluate, export, "
        "promote, convert and predict",
        "operators": [{"integration-name": "DeepSpark", "python-modules": modules}],
        "hooks": [{"integration-name": "DeepSpark", "python-modules": [f"{__name__}.connection"]}],
        "triggers": [{"integration-name": "DeepSpark", "python-modules": [f"{operators.__name__}.tasks.turn"]}],
        "extra-links": [f"{operators.__name__}.pages.plugin.{name}" for name in _LINKS],
        "notifications": [f"{operators.__name__}.notices.notifier.DeepSparkNotifier"],
        "connection-types": [
            {
                "connection-type": "deepspark",
                "hook-class-name": f"{__name__}.connection.DeepSparkHook",
                "hook-name": "DeepSpark",
                "ui-field-behaviour": {"hidden-fields": ["host", "port", "login", "password", "schema", "extra"]},
                "conn-fields": fields,
            }
        ],
    }
