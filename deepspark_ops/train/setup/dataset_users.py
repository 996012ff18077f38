"""Notes in a dataset about the runs that read the dataset: a run may be anywhere, not only in ``runs/`` of a home.

``.users/<digest of the run's folder>.json`` has the folder, the host, and the digest of the version.
"""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.errors import DataError
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.stores.store_path import DataPath, paths_in
from deepspark_ops.stores.writing import write_text

USER_VERSION: Final = 1
UNSEEN_DAYS: Final = 30
"""Days for which a note counts if the run is of another host and the run's folder is not visible here."""
_DAY_S: Final = 86_400.0


@dataclass(frozen=True)
class DatasetUser:
    """A run that reads a version of a dataset.

    Attributes:
        run_dir: Folder of the run.
        host: Host of the driver.
        train_digest: Digest of the training set's manifest, which names the version.
    """

    run_dir: Path
    host: str
    train_digest: str


def note_user(dataset: DataPath, run_dir: Path, train_digest: str) -> None:
    """Note in a dataset that a run reads a version; a dataset that only other users may write gets no note."""
    folder = run_dir.absolute()
    name = hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    note = {
        "format_version": USER_VERSION,
        "run_dir": str(folder),
        "host": socket.gethostname(),
        "train_digest": train_digest,
    }
    users = DatasetPaths(dataset).users
    with suppress(OSError):
        if isinstance(users, Path):
            users.mkdir(exist_ok=True)
        write_text(users / f"{name}.json", json.dumps(note) + "\n")


def current_users(dataset: DataPath) -> Iterator[DatasetUser]:
    """Yield the runs whose folder exists, and runs of other hosts that began in the last days.

    Raises:
        DataError: A note is damaged, so that the users are unknown.
        OSError: A store does not answer.
    """
    folder = DatasetPaths(dataset).users
    for path in paths_in(folder, "*.json") if folder.is_dir() else ():
        if path.name.startswith("."):  # the temporary file of a writer
            continue
        try:
            text, changed = regular_text(path), path.stat().st_mtime
            note = json.loads(text)
            user = DatasetUser(Path(note["run_dir"]), str(note["host"]), str(note["train_digest"]))
        except FileNotFoundError:
            continue
        except (ValueError, TypeError, KeyError) as error:
            msg = f"{path}: no note of a run, so that the users of the dataset are not known; remove the file"
            raise DataError(msg) from error
        is_recent = user.host != socket.gethostname() and time.time() - changed < UNSEEN_DAYS * _DAY_S
        if user.run_dir.is_dir() or is_recent:
            yield user
