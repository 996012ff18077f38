"""Stages predict and features as a process: ``python -m deepspark_ops.predict CONFIG.json``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from caffe_import.extras import require
from deepspark_ops.config.commands.predict import parse_answers_config
from deepspark_ops.processes.stage_process import read_config_file, stage_main

_log = logging.getLogger(__name__)


def main(config_path: Path) -> None:
    """Answer every input and log progress and result; a config with blobs is a config of features."""
    values = read_config_file(config_path)
    require("tensorflow", "pyarrow", part="deepspark features" if "blobs" in values else "deepspark predict")
    # This import is late: ``require`` reports a missing package in one message.
    from deepspark_ops.predict.answers import write_answers

    write_answers(parse_answers_config(values), on_step=_log.info).log_to(_log)


if __name__ == "__main__":
    sys.exit(stage_main(main))
