"""Common part of the documentation of several DAGs."""

from __future__ import annotations

import json
from pathlib import Path

from deepspark_ops.config.example_conf import example_conf


def with_example(description: str, dag_id: str, root: Path) -> str:
    """Return a DAG's documentation, in Markdown, with the example's conf.

    Args:
        description: Text of the DAG.
        dag_id: Id of the DAG.
        root: Folder that a run's relative paths start from.
    """
    conf = json.dumps(example_conf(dag_id, root), indent=1)
    return (
        f"{description}\n**An example**: paste this conf into *Configuration JSON*, below *Advanced Options* of the"
        f" trigger form.\n\n```json\n{conf}\n```\n"
    )
