"""Stage export: write the bundle."""

from __future__ import annotations

from typing import Any

from deepspark_ops.config.base import StageConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.form import config_from_params
from deepspark_ops.operators.tasks.process_stage import ProcessStageOperator
from deepspark_ops.operators.tasks.stage_run import StageRun
from deepspark_ops.run_paths import RunPaths


class ExportOperator(ProcessStageOperator):
    """Export the run's last snapshot.

    Its result has ``bundle``, the folder, and ``digest``, that of the bundle's manifest.

    Example:
        .. code-block:: python

            evaluate >> ExportOperator(task_id="export", places=installed_places())
    """

    module = "deepspark_ops.export"

    def stage_config(self, context: Any, run: StageRun) -> ExportConfig:
        """Return the export config of a run."""
        return config_from_params(ExportConfig, context["params"], self.places.root, run_dir=run.run_dir)

    def result(self, run: StageRun, config: StageConfig) -> dict[str, str]:
        """Return the bundle and the digest of its manifest."""
        bundle = RunPaths(run.run_dir).bundle
        return {"bundle": str(bundle), "digest": file_digest(bundle / "manifest.json")}
