"""Stage check as a process: ``python -m deepspark_ops.preflight CONFIG.json``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.preflight.check import run_check
from deepspark_ops.preflight.table import report_lines
from deepspark_ops.processes.stage_process import read_config_file, stage_main

_log = logging.getLogger(__name__)


def main(config_path: Path) -> None:
    """Inspect the solver and log the report.

    Raises:
        ConfigError: The report has errors; one per line.
        CaffeImportError: The solver or a net's file cannot be read.
    """
    report = run_check(parse_config(CheckConfig, read_config_file(config_path)))
    for line in report_lines(report):
        _log.info("%s", line)
    if report.errors:
        raise ConfigError("\n".join(report.errors))


if __name__ == "__main__":
    sys.exit(stage_main(main))
