"""Stage convert as a process: ``python -m deepspark_ops.export.convert CONFIG.json``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.devices.host_gpus import hide_gpus
from deepspark_ops.export.formats.outside_reader import readers_ahead
from deepspark_ops.processes.stage_process import read_config_file, stage_main

_log = logging.getLogger(__name__)


def main(config_path: Path) -> None:
    """Convert and log the steps and the result."""
    hide_gpus()  # the bundle is checked as it is served on any machine
    config = parse_config(ConvertConfig, read_config_file(config_path))
    with readers_ahead(config.formats):
        # Imported here, where a missing TensorFlow is reported in one message.
        from deepspark_ops.export.bundle import refuse_foreign, write_model
        from deepspark_ops.export.convert.from_files import parts_of_files

        refuse_foreign(config.output)
        with parts_of_files(config) as model:
            bundle = write_model(model, config.output, on_step=_log.info)
    _log.info("%s", bundle.summary())


if __name__ == "__main__":
    sys.exit(stage_main(main))
