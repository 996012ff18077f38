"""What a recorded run began with and came to, so that a repetition can be compared with it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from deepspark_ops.errors import ConfigError
from deepspark_ops.param_vector import Vector
from deepspark_ops.run_paths import RunPaths, write_text_whole

_FILE = "run.json"


@dataclass(frozen=True)
class RecordSummary:
    """SHA-256 digests: of the center at the start and at the end, and of the net as trained."""

    start: str
    center: str
    net: str


def summarize(paths: RunPaths, start: Vector, center: Vector) -> RecordSummary:
    """Return the summary of a run whose net lies in its folder."""
    # Lists of sources lie in the run's own folder.
    net = paths.net.read_text(encoding="utf-8").replace(str(paths.root), "RUN")
    digests = [hashlib.sha256(part).hexdigest() for part in (start.data, center.data, net.encode())]
    return RecordSummary(*digests)


def write_summary(paths: RunPaths, summary: RecordSummary) -> None:
    """Finish the record of a run that has ended."""
    write_text_whole(paths.record / _FILE, json.dumps(asdict(summary), indent=1))


def read_summary(paths: RunPaths) -> RecordSummary:
    """Return the summary of a recorded run.

    Raises:
        ConfigError: The run was not recorded or did not end.
    """
    path: Path = paths.record / _FILE
    if not path.is_file():
        msg = f"replay={paths.root}: holds no record of a run that ended; train with --record first"
        raise ConfigError(msg)
    return RecordSummary(**json.loads(path.read_text(encoding="utf-8")))
