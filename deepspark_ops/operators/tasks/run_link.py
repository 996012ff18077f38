"""Links from the folder of a DAG's runs to runs in other folders, so that the pages show them. Needs no Airflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from deepspark_ops.operators.tasks.run_plan import Places, folder_prefixes


def is_shown(places: Places, dag_id: str, run_id: str, run_dir: Path) -> bool:
    """Return whether the pages of a DAG run show the run in ``run_dir``: by its place, or by a link."""
    folder = places.run_folder(dag_id, run_id).parent
    return run_dir.parent in (folder, folder.resolve()) or run_dir.resolve() in _targets(folder, run_id)


def link_run(places: Places, dag_id: str, run_id: str, task: str, run_dir: Path) -> str | None:
    """Link a run in another folder into the folder of the DAG's runs, as a run that ``task`` began.

    Args:
        places: Where the runs are, and the allowed folders.
        dag_id: Of the DAG.
        run_id: Of the DAG run.
        task: Id of the task, for a mapped task with ``_<index>``.
        run_dir: Folder of the run, present or not.

    Returns:
        The reason if no page can show the run; else None.
    """
    if is_shown(places, dag_id, run_id, run_dir):
        return None
    if not places.may_show(run_dir.resolve()):
        return (
            f"{run_dir}: no page of Airflow shows this run, since the folder lies outside of {places.home / 'runs'} and"
            " of DEEPSPARK_ALLOWED_ROOTS; add a folder above it there, or leave out run="
        )
    link = places.run_folder(dag_id, f"{run_id}__{task}")
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():
            link.unlink()  # of an earlier try with another run=
        link.symlink_to(run_dir.resolve())
    except OSError as error:
        return f"{run_dir}: no page of Airflow shows this run, since there is no link to it: {link}: {error.strerror}"
    return None


def _targets(folder: Path, run_id: str) -> Iterator[Path]:
    """Yield the folders behind the links of a DAG run."""
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            if path.name.startswith(folder_prefixes(run_id)) and path.is_symlink():
                yield path.resolve()
