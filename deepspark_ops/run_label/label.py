"""Label of a run, ``label.json``: name and tags by a person, and whether the run is archived."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from caffe_import.file_access.regular_file import regular_bytes
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.run_paths import RunPaths, write_text_whole

LABEL_VERSION: Final = 1


class RunLabel(FrozenModel):
    """Label of a run.

    Attributes:
        format_version: Version of this form.
        name: Name of the run; empty for the default name.
        tags: Words to find the run by.
        archived: Whether lists hide the run.
    """

    format_version: Literal[1] = LABEL_VERSION
    name: str = ""
    tags: tuple[str, ...] = ()
    archived: bool = False


def read_label(run_dir: Path) -> RunLabel:
    """Return a run's label; an empty label if the file is missing, damaged or of another version."""
    try:
        return RunLabel.model_validate_json(regular_bytes(RunPaths(run_dir).label))
    except (OSError, ValidationError):
        return RunLabel()


def write_label(run_dir: Path, label: RunLabel) -> None:
    """Write a run's label; an empty label needs no file."""
    path = RunPaths(run_dir).label
    if label == RunLabel() and not path.exists():
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    write_text_whole(path, label.model_dump_json(indent=1) + "\n")


def label_run(run_dir: Path, config: RunLabelConfig) -> RunLabel:
    """Give a run its name and tags at the start, and return the label.

    A name or tags that the run has already stay, since a person may have changed them after the trigger.
    """
    earlier = read_label(run_dir)
    name, tags = earlier.name or config.name, earlier.tags or config.tag_words()
    label = earlier.model_copy(update={"name": name, "tags": tags})
    if label != earlier:
        write_label(run_dir, label)
    return label
