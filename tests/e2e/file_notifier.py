"""A notifier of an installation writes messages into a file."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier

TEMPLATES = {"event": "{{ deepspark.event }}", "reason": "{{ deepspark.reason }}", "link": "{{ deepspark.link }}"}


class FileNotifier(BaseNotifier):
    """Adds a line of JSON to a file; several tasks may at once."""

    template_fields = ("values",)

    def __init__(self, path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = Path(path)
        self.values = dict(TEMPLATES)

    def notify(self, context: Any) -> None:
        notice = {"dag": context["deepspark"].dag, "run": context["deepspark"].run, **self.values}
        with self.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(notice) + "\n")
