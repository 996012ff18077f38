"""State of a run's transfer to MLflow, in the run's folder, so a retry continues with the same MLflow run."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, ValidationError

from caffe_import.file_access.regular_file import regular_bytes
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.run_paths import RunPaths, write_text_whole

_LOG = logging.getLogger(__name__)
TRANSFER_VERSION: Final = 1


class TransferState(FrozenModel):
    """The file.

    Attributes:
        format_version: Version of this form.
        id: Generated id of the run's folder; the MLflow run has the id as a tag.
        run_id: MLflow's id of the run; None before the first transfer.
        events: Position in the run's events up to which numbers were sent (``RunReading.token``).
        sending: Target position of an interrupted transfer; empty without an interruption.
        sent: Number of points that the interrupted transfer sent.
        files: Path in the run's folder -> digest of the sent file.
    """

    format_version: Literal[1] = TRANSFER_VERSION
    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    run_id: str | None = None
    events: str = ""
    sending: str = ""
    sent: int = 0
    files: Mapping[str, str] = Field(default_factory=dict)

    def of_run(self, run_id: str) -> TransferState:
        """Return the state for an MLflow run; empty if the file is about another run or server."""
        return self if run_id == self.run_id else TransferState(id=self.id, run_id=run_id)

    def offset(self, token: str) -> int:
        """Return the offset in the events after which numbers are new; -1 if all numbers are new.

        Args:
            token: Present token of the events.
        """
        file, _, end = token.partition(".")
        told_file, _, told_end = self.events.partition(".")
        is_same = file == told_file and told_end.isdecimal() and int(told_end) <= int(end)
        return int(told_end) if is_same else -1

    def n_sent(self, token: str) -> int:
        """Return the number of points before a position, sent by an interrupted transfer."""
        return self.sent if self.sending == token else 0


def read_transfer(run_dir: Path) -> TransferState:
    """Return the state of a run; a damaged file counts as missing, and the run becomes a new run in MLflow."""
    path = RunPaths(run_dir).mlflow
    try:
        return TransferState.model_validate_json(regular_bytes(path))
    except FileNotFoundError:
        return TransferState()
    except ValidationError:
        _LOG.warning("%s: damaged or of another version; MLflow gets the run as a new one", path)
        return TransferState()


def write_transfer(run_dir: Path, transfer: TransferState) -> None:
    """Write the file as a whole."""
    write_text_whole(RunPaths(run_dir).mlflow, transfer.model_dump_json(indent=1) + "\n")
