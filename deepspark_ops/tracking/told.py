"""What MLflow has been told of a run, kept in the run's folder, so that a retry goes on with the same MLflow run."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from caffe_import.files.regular_file import regular_bytes
from deepspark_ops.run_paths import RunPaths, write_text_whole

_LOG = logging.getLogger(__name__)
TOLD_VERSION: Final = 1


class Told(BaseModel):
    """The file.

    Attributes:
        format_version: Version of this form.
        id: Of the run's folder, made here; its MLflow run carries it as a tag, and is found again by it.
        run_id: MLflow's own id of that run; None before there is one.
        events: Place in the run's events up to which their numbers were sent (``RunReading.token``).
        sending: Place up to which they were being sent when that was cut off; empty if it was not.
        sent: How many of those had arrived.
        files: Path in the run's folder -> digest of what was sent of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = TOLD_VERSION
    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    run_id: str | None = None
    events: str = ""
    sending: str = ""
    sent: int = 0
    files: Mapping[str, str] = Field(default_factory=dict)

    def of_run(self, run_id: str) -> Told:
        """Return what that MLflow run was told: nothing if the file speaks of another, such as another server's."""
        return self if run_id == self.run_id else Told(id=self.id, run_id=run_id)

    def offset(self, token: str) -> int:
        """Return the offset in the events behind which numbers are new; -1 if all are.

        Args:
            token: Of the events as they are now.
        """
        file, _, end = token.partition(".")
        told_file, _, told_end = self.events.partition(".")
        is_same = file == told_file and told_end.isdecimal() and int(told_end) <= int(end)
        return int(told_end) if is_same else -1

    def n_sent(self, token: str) -> int:
        """Return how many of the numbers up to a place had arrived when their sending was cut off."""
        return self.sent if self.sending == token else 0


def read_told(run_dir: Path) -> Told:
    """Return what was told of a run; a damaged file counts as missing, and the run becomes a new one in MLflow."""
    path = RunPaths(run_dir).mlflow
    try:
        return Told.model_validate_json(regular_bytes(path))
    except FileNotFoundError:
        return Told()
    except ValidationError:
        _LOG.warning("%s: damaged or of another version; MLflow gets the run as a new one", path)
        return Told()


def write_told(run_dir: Path, told: Told) -> None:
    """Write the file whole."""
    write_text_whole(RunPaths(run_dir).mlflow, told.model_dump_json(indent=1) + "\n")
