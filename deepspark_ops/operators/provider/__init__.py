"""What Airflow's list of providers shows of DeepSpark, by the entry point ``apache_airflow_provider``."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the description of the provider, as Airflow's schema of provider information has it.

    The pages' plugin is not in it: its own entry point registers the plugin, and Airflow reports a second one.
    """
    from deepspark_ops import operators

    modules = sorted({f"{operators.__name__}.{module}" for module in operators.OPERATOR_MODULES})
    return {
        "package-name": "deepspark",
        "name": "DeepSpark",
        "description": "Caffe nets trained by Spark workers: operators for check, ingest, train, evaluate, export, "
        "promote, convert and predict",
        "operators": [{"integration-name": "DeepSpark", "python-modules": modules}],
    }
