"""``python -m docs.pictures [NAME ...]``: take the pictures of docs/images, all without a name (``make pictures``)."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

from deepspark_ops.operators.pages.addresses import RUNS_URL
from docs.pictures.example_runs import running_airflow
from docs.pictures.views import VIEWS, View
from tests.browser import Page, browser_page
from tests.e2e.airflow_instance import AirflowInstance, log_in
from tests.paths import ROOT

MOST_BYTES = 200_000
_SETTLE_S = 2.0
"""Fonts, transitions and Airflow's own pages give no sign of their end."""
_REPLACE = """((texts) => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    for (const [old, text] of texts) walk.currentNode.data = walk.currentNode.data.replaceAll(old, text);
  }
})(%s)"""
"""Takes what differs between machines out of a page's text."""


def take(page: Page, airflow: AirflowInstance, name: str, view: View) -> Path:
    """Take a picture and return the file.

    Raises:
        SystemExit: The file would be too large for the docs.
    """
    page.resize(view.width, view.height)
    view.show(page, airflow)
    time.sleep(_SETTLE_S)
    texts = [[str(airflow.base), "/data"], [str(ROOT), "/opt/deepspark"], [socket.gethostname(), "host-1"]]
    if port := page.evaluate("location.port"):
        texts.append([f":{port}", ":8000"])
    page.evaluate(_REPLACE % json.dumps(texts))
    path = ROOT / "docs" / "images" / f"{name}.png"
    page.screenshot(path)
    if path.stat().st_size > MOST_BYTES:
        sys.exit(f"{path} has {path.stat().st_size:,} bytes, more than {MOST_BYTES:,}: show less of the page")
    return path


def main(names: list[str]) -> None:
    """Take the pictures with these names; DEEPSPARK_PICTURES names a folder that keeps the runs for another time."""
    if unknown := set(names) - set(VIEWS):
        sys.exit(f"no picture is called {', '.join(sorted(unknown))}; there are {', '.join(VIEWS)}")
    os.environ["LOGNAME"] = "admin"  # whom the history of a model names
    with tempfile.TemporaryDirectory(prefix="deepspark-pictures-") as folder:
        kept = Path(os.environ.get("DEEPSPARK_PICTURES") or folder)
        with running_airflow(kept.absolute()) as airflow, browser_page() as page:
            page.prefer("light")
            page.call("Emulation.setScrollbarsHidden", hidden=True)
            log_in(page, airflow, airflow.site + RUNS_URL)
            for name in names or VIEWS:
                print(take(page, airflow, name, VIEWS[name]).relative_to(ROOT), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
