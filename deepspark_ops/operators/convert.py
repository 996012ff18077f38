"""Stage convert: a bundle of a net and weights that were trained elsewhere."""

from __future__ import annotations

from typing import Any

from deepspark_ops.config.base import StageConfig
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.export.manifest import MANIFEST_NAME, file_digest
from deepspark_ops.operators.form import config_from_params, refuse_unknown
from deepspark_ops.operators.tasks.process_stage import ProcessStageOperator
from deepspark_ops.operators.tasks.stage_run import StageRun
from deepspark_ops.run_paths import RunPaths


class ConvertOperator(ProcessStageOperator):
    """Make a bundle of the run's parameters ``net`` and ``weights``, checked by running it; no other task is needed.

    Its result has ``bundle``, the folder, and ``digest``, that of the bundle's manifest.

    Example:
        .. code-block:: python

            with DAG("convert_ours", params=form_params([("Convert", ConvertConfig)], {"net": "", "weights": ""})):
                ConvertOperator(task_id="convert", places=installed_places())
    """

    module = "deepspark_ops.export.convert"

    def stage_run(self, context: Any) -> StageRun:
        """Return the run's folder: nothing precedes this task that could have chosen it."""
        run = context["dag_run"]
        return StageRun(self.places.run_folder(run.dag_id, run.run_id), dataset=None, production=None)

    def stage_config(self, context: Any, run: StageRun) -> ConvertConfig:
        """Return the convert config of a run."""
        refuse_unknown(context["dag_run"].conf, list(context["dag"].params))
        return config_from_params(
            ConvertConfig,
            context["params"],
            self.places.root,
            output=RunPaths(run.run_dir).bundle,
            named_files=self.places.named_files(),
        )

    def result(self, run: StageRun, config: StageConfig) -> dict[str, str]:
        """Return the bundle and the digest of its manifest."""
        bundle = RunPaths(run.run_dir).bundle
        return {"bundle": str(bundle), "digest": file_digest(bundle / MANIFEST_NAME)}
