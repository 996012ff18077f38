"""One run of a virtual cluster as a process: ``python -m deepspark_ops.simulation CONFIG.json``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import VirtualRunConfig
from deepspark_ops.processes.stage_process import read_config_file, stage_main
from deepspark_ops.simulation.results import write_result

_log = logging.getLogger(__name__)


def main(config_path: Path) -> None:
    """Train and write the result."""
    config = parse_config(VirtualRunConfig, read_config_file(config_path))
    # Imported here, where a missing TensorFlow is reported in one message.
    from deepspark_ops.simulation.virtual_run import run_virtual

    result = run_virtual(config, config.result.with_suffix(".run"))
    write_result(config.result, result)
    _log.info("%s: %s %s", config.result.name, result.figure, result.accuracy)


if __name__ == "__main__":
    sys.exit(stage_main(main))
