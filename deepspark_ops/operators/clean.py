"""Stage clean: list, or remove, runs and datasets without a use."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator

from deepspark_ops.config.clean import CleanConfig
from deepspark_ops.operators.tasks.stage_arguments import StageArguments
from deepspark_ops.operators.tasks.stage_run import ends_plainly, noted_stage
from deepspark_ops.retention.clean import clean
from deepspark_ops.run_paths import write_text_whole


class DeepSparkCleanOperator(StageArguments, BaseOperator):
    """Write ``clean.json`` into the run's folder: what goes and what stays, and why. ``remove=True`` removes it.

    The output has ``run_dir`` and ``report``, that file.

    Example:
        .. code-block:: python

            DeepSparkCleanOperator(task_id="clean", older_than=30, remove=True)
    """

    config_models = (CleanConfig,)
    not_arguments = frozenset({"home"})
    takes_run = False
    stage = "clean"
    own_retries = 0

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """List or remove, and return where the list is."""
        run = self.stage_run(context)
        run_dir = run.run_dir
        with noted_stage(run_dir, self.stage, self.log):
            self.refuse_unknown_conf(context)
            # A relative models folder is below the home, as it is for promote.
            config = self.config(CleanConfig, folder=self.places.home, home=self.places.home)
            # A person who may trigger a DAG must not remove the sources of models that the pages protect.
            report = clean(config, on_step=self.log.info, served_models=self.places.models)
            path = run_dir / "clean.json"
            write_text_whole(path, report.model_dump_json(indent=1) + "\n")
        for line in report.lines():
            self.log.info("%s", line)
        return {"run_dir": str(run_dir), "report": str(path)}
