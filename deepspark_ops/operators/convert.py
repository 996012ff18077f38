"""Stage convert: a bundle of a net and weights from another training."""

from __future__ import annotations

from typing import Any

from deepspark_ops.api import stages
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.export.manifest import MANIFEST_NAME, file_digest
from deepspark_ops.operators.tasks.process_stage import ProcessStageOperator
from deepspark_ops.operators.tasks.stage_run import StageRun
from deepspark_ops.run_paths import RunPaths


class DeepSparkConvertOperator(ProcessStageOperator):
    """Make a bundle of a net and weights, checked by a run of the net; the task needs no other task.

    The output has ``run_dir``, ``bundle`` (the folder, by default in the run's) and ``digest`` (of the manifest).

    Example:
        .. code-block:: python

            DeepSparkConvertOperator(task_id="convert", net="deploy.prototxt", weights="a.caffemodel", scale=0.00390625)
    """

    config_models = (ConvertConfig,)
    required = ("net", "weights")
    stage = "convert"
    in_python = staticmethod(stages.convert)
    takes_run = False

    def stage_config(self, context: Any, run: StageRun) -> ConvertConfig:
        """Return the convert config of a run."""
        output = None if "output" in self.values() else RunPaths(run.run_dir).bundle
        return self.config(ConvertConfig, output=output, named_files=self.places.named_files())

    def result(self, run: StageRun, config: ConvertConfig) -> dict[str, str]:
        """Return the bundle and the digest of the manifest."""
        return {"bundle": str(config.output), "digest": file_digest(config.output / MANIFEST_NAME)}
