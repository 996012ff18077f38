"""The client's process: ``python -m deepspark_ops.tracking CONFIG.json``. ``tell`` starts the process."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from deepspark_ops.config.track import TrackConfig
from deepspark_ops.processes.stage_process import read_config_file, stage_main
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.tracking.send import send_model, send_run

_LOG = logging.getLogger(__name__)


def main(config_path: Path) -> None:
    """Send the data missing in MLflow, of a run or a model."""
    from deepspark_ops.tracking.mlflow_client import MlflowServer  # the import takes seconds

    config = TrackConfig.model_validate(read_config_file(config_path))
    server = MlflowServer()
    model = ModelFolder(config.folder)
    is_model = model.versions.is_dir()
    result = send_model(server, model) if is_model else send_run(server, config.folder, over=config.over)
    _LOG.info("MLflow: %s", result)


if __name__ == "__main__":
    sys.exit(stage_main(main))
