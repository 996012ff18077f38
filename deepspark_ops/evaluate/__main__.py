"""Stage evaluate as a process: ``python -m deepspark_ops.evaluate CONFIG.json``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.evaluate.found_weights import find_weights
from deepspark_ops.processes.stage_process import read_config_file, stage_main
from deepspark_ops.run_paths import RunPaths

_log = logging.getLogger(__name__)


def main(config_path: Path) -> None:
    """Evaluate and log the result."""
    config = parse_config(EvaluateConfig, read_config_file(config_path))
    find_weights(RunPaths(config.run_dir), config.weights)  # refused before TensorFlow is loaded
    # Imported here, where a missing TensorFlow is reported in one message.
    import caffe_import.tf_graph  # noqa: F401 - the first to import TensorFlow, which it does fastest
    from deepspark_ops.evaluate.stage import run_evaluate

    evaluation = run_evaluate(config)
    _log.info("report: %s", evaluation.report_path)


if __name__ == "__main__":
    sys.exit(stage_main(main))
