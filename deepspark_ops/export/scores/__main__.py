"""Scoring of a bundle as a process: ``python -m deepspark_ops.export.scores CONFIG.json``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.evaluate import ScoreBundleConfig
from deepspark_ops.processes.stage_process import read_config_file, stage_main

_log = logging.getLogger(__name__)


def main(config_path: Path) -> None:
    """Score and log where the result is."""
    # Imported here, where a missing TensorFlow is reported in one message.
    from deepspark_ops.export.scores.bundle_scores import score_bundle

    config = parse_config(ScoreBundleConfig, read_config_file(config_path))
    metrics = score_bundle(config)
    _log.info("bundle %s: %s", config.bundle.name, metrics.summary())


if __name__ == "__main__":
    sys.exit(stage_main(main))
