"""Stage export as a process: ``python -m deepspark_ops.export CONFIG.json``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.devices.host_gpus import hide_gpus
from deepspark_ops.evaluate.found_weights import find_weights
from deepspark_ops.export.formats.outside_reader import readers_ahead
from deepspark_ops.processes.stage_process import read_config_file, stage_main
from deepspark_ops.run_paths import RunPaths

_log = logging.getLogger(__name__)


def main(config_path: Path) -> None:
    """Export and log the steps and the result."""
    hide_gpus()  # the bundle is checked as it is served on any machine
    config = parse_config(ExportConfig, read_config_file(config_path))
    find_weights(RunPaths(config.run_dir), config.weights)  # refused before TensorFlow is loaded
    with readers_ahead(config.formats):
        # Imported here, where a missing TensorFlow is reported in one message.
        from deepspark_ops.export.bundle import write_bundle

        bundle = write_bundle(config, on_step=_log.info)
    _log.info("%s", bundle.summary())


if __name__ == "__main__":
    sys.exit(stage_main(main))
