"""Stage clean: list, or remove, the runs and datasets that nothing needs any more."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator

from deepspark_ops.config.clean import CleanConfig
from deepspark_ops.operators.form import config_from_params, refuse_unknown
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.operators.tasks.stage_run import airflow_errors, ends_plainly, noted_stage
from deepspark_ops.retention.clean import clean
from deepspark_ops.run_paths import write_text_whole


class CleanOperator(BaseOperator):
    """Write ``clean.json`` into the run's folder: what goes and what stays, and why. Param ``remove`` removes it.

    Its result has ``report``, that file.

    Example:
        .. code-block:: python

            with DAG("clean_ours", schedule="@weekly", params=form_params([("Clean", CleanConfig)], {"remove": True})):
                CleanOperator(task_id="clean", places=installed_places())
    """

    own_retries = 0

    def __init__(self, *, places: Places, **kwargs: Any) -> None:
        """Keep where runs, datasets and models live."""
        super().__init__(**kwargs)
        self.places = places

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str]:
        """List or remove, and return where the list is."""
        run = context["dag_run"]
        run_dir = self.places.run_folder(run.dag_id, run.run_id)
        with noted_stage(run_dir, str(self.task_id), self.log), airflow_errors():
            refuse_unknown(run.conf, list(context["dag"].params))
            # A relative models folder is below the home, as it is for promote.
            config = config_from_params(CleanConfig, context["params"], self.places.home, home=self.places.home)
            report = clean(config, on_step=self.log.info)
            path = run_dir / "clean.json"
            write_text_whole(path, report.model_dump_json(indent=1) + "\n")
        for line in report.lines():
            self.log.info("%s", line)
        return {"report": str(path)}
