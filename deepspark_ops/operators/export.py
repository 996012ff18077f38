"""Stage export: write the bundle."""

from __future__ import annotations

from typing import Any

from deepspark_ops.api import stages
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.export.manifest import MANIFEST_NAME, file_digest
from deepspark_ops.operators.tasks.process_stage import ProcessStageOperator
from deepspark_ops.operators.tasks.stage_run import StageRun
from deepspark_ops.run_paths import RunPaths


class DeepSparkExportOperator(ProcessStageOperator):
    """Export the run's last snapshot.

    The output has the run's paths, ``bundle`` (the folder) and ``digest`` (of the bundle's manifest).

    Example:
        .. code-block:: python

            DeepSparkExportOperator(task_id="export", run=train.output, formats="saved_model,caffe,onnx")
    """

    config_models = (ExportConfig,)
    stage = "export"
    needs_training = True
    in_python = staticmethod(stages.export)

    def stage_config(self, context: Any, run: StageRun) -> ExportConfig:
        """Return the export config of a run."""
        return self.config(ExportConfig, run_dir=run.run_dir)

    def result(self, run: StageRun, config: ExportConfig) -> dict[str, str]:
        """Return the bundle and the digest of the manifest."""
        bundle = config.output or RunPaths(run.run_dir).bundle
        return {"bundle": str(bundle), "digest": file_digest(bundle / MANIFEST_NAME)}
