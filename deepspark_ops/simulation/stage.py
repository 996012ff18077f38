"""Stage simulate as a process, for a DAG: ``python -m deepspark_ops.simulation.stage CONFIG.json``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import SimulateConfig
from deepspark_ops.processes.stage_process import read_config_file, stage_main

_log = logging.getLogger(__name__)


def main(config_path: Path) -> None:
    """Make the missing runs, and write the report and its page into ``out``."""
    config = parse_config(SimulateConfig, read_config_file(config_path))
    # Imported here, where a missing TensorFlow is reported in one message.
    from deepspark_ops.simulation.simulate import PAGE_FILE, run_simulation
    from deepspark_ops.simulation.view import group_line

    report = run_simulation(config, lambda n_done, total: _log.info("%d of %d virtual runs are done", n_done, total))
    for group in report.groups:
        _log.info("%s", group_line(report, group))
    for advice in report.advice:
        _log.info("%s: %s", advice.text, advice.reason)
    for note in report.notes:
        _log.warning("%s", note)
    _log.info("curves: %s", config.out / PAGE_FILE)


if __name__ == "__main__":
    sys.exit(stage_main(main))
