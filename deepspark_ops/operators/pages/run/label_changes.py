"""Changes of a run's label by a person: name, tags, archive. No framework."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.evaluate.metrics import REPORT_NAME
from deepspark_ops.evaluate.task_pages.report_name import with_name
from deepspark_ops.operators.pages.addresses import find_run
from deepspark_ops.operators.pages.refused import no_run
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_index.run_text import run_name
from deepspark_ops.run_label.label import RunLabel, read_label, write_label
from deepspark_ops.run_paths import RunPaths, write_text_whole

MOST_RUNS = 500
"""Runs that a single request archives."""


class LabelChanges:
    """Changes of the labels of an installation's runs."""

    def __init__(self, installation: Places, run_keys: Callable[[Collection[str]], set[str]]) -> None:
        """Change runs of ``installation``; ``run_keys(dags)`` are the keys ``<dag>/<run>`` of the DAGs' runs."""
        self._installation = installation
        self._run_keys = run_keys

    def rename(self, readable: Collection[str], key: str, name: str, tags: str) -> RunLabel:
        """Give a run a name and tags, also in the run's report; empty texts give the default name and no tags.

        Raises:
            Refused: There is no such run for the person.
            ConfigError: A text is too long.
        """
        (folder,) = self._folders(readable, [key])
        config = parse_config(RunLabelConfig, {"name": name, "tags": tags})
        label = read_label(folder).model_copy(update={"name": config.name, "tags": config.tag_words()})
        write_label(folder, label)
        _rename_report(folder, label)
        return label

    def archive(self, readable: Collection[str], keys: Sequence[str], *, archived: bool) -> None:
        """Put runs into the archive, or take the runs out.

        Raises:
            Refused: There is no such run for the person; no run is changed then.
        """
        for folder in self._folders(readable, keys):
            write_label(folder, read_label(folder).model_copy(update={"archived": archived}))

    def _folders(self, readable: Collection[str], keys: Sequence[str]) -> list[Path]:
        """Return the folders of runs that a person may read."""
        run_keys = self._run_keys(readable)
        folders = []
        for key in dict.fromkeys(keys):
            dag, _, run = key.partition("/")
            folder = find_run(self._installation, dag, run) if key in run_keys else None
            if folder is None:
                raise no_run(key)
            folders.append(folder)
        return folders


def _rename_report(run_dir: Path, label: RunLabel) -> None:
    path = RunPaths(run_dir).evaluation / REPORT_NAME
    if path.is_file():
        write_text_whole(path, with_name(regular_text(path), run_name(run_dir), label.tags))
