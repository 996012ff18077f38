"""Time the list of 10,000 runs: ``python benchmarks/run_list.py [--json] [--runs 10000]``.

Makes runs in a new folder: each has config, events, evaluation, tasks' notes, label and index. Most files are hard
links. New processes then answer the list as the page does, without Airflow and its database; the best of ``--rounds``
counts. All figures are seconds of processor time:

- ``first_s``: the first list of a new process, with summaries from the runs' index files (limit 1 s);
- ``again_s``: the second list;
- ``filter_s``: the list with a filter of three conditions (limit 0.3 s);
- ``page_s``: the first page of a list as HTML, without the answer;
- ``refresh_s``: the list for an open page that refreshes, from rows shared by such pages;
- ``overview_s``: the first answer of *Look over many* with 1,000 runs, and the page as HTML;
- ``drawing_s``: the main thread of Chromium, from this page to the drawn scatter and parallel coordinates; 0 without
  Chromium;
- ``scatter_s``: the sum of both (limit 2 s);
- ``twenty_pages``: share of a core for twenty open pages that refresh (limit 0.1), computed from ``refresh_s``.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from deepspark_ops.events import DRIVER, Event  # noqa: E402
from deepspark_ops.operators.tasks.run_plan import Places  # noqa: E402
from deepspark_ops.run_index.index_file import write_index  # noqa: E402
from deepspark_ops.run_index.listing import KnownRun  # noqa: E402
from deepspark_ops.run_label.label import RunLabel, write_label  # noqa: E402
from deepspark_ops.run_paths import RunPaths  # noqa: E402
from tests.browser import browser_page, find_chromium  # noqa: E402
from tests.reference.evaluations import evaluation, write_evaluation  # noqa: E402

DAG = "deepspark_train"
KINDS = 40
"""Number of different runs; the other runs are copies."""
LIMITS = {"first_s": 1.0, "filter_s": 0.3, "scatter_s": 2.0, "twenty_pages": 0.1}
OPEN_PAGES = 20
FILTER = "accuracy>0.9 and workers=2 and net~alex"


def write_run(folder: Path, number: int) -> None:
    """Write a finished run with all files of a list's row."""
    run = RunPaths(folder)
    run.stages.mkdir(parents=True)
    n_workers, strategy = 1 + number % 4, ("easgd", "sync", "local_sgd")[number % 3]
    config = {"solver": "/s/lenet_solver.prototxt", "comm_period": 4, "strategy": strategy, "dataset": "/d/digits"}
    run.config.write_text(json.dumps(config), encoding="utf-8")
    run.net.write_text(f'name: "net {number % 2}"\n', encoding="utf-8")
    rates = f"base_lr: {0.001 * (1 + number % 7)}\nmomentum: 0.9\nweight_decay: {0.0001 * (1 + number % 5)}\n"
    run.solver.write_text(f'net: "net.prototxt"\nlr_policy: "fixed"\nmax_iter: 2000\n{rates}', encoding="utf-8")
    net = ("LeNet", "AlexNet")[number % 2]
    start = {"stage": "train", "status": "started", "net": net, "n_workers": n_workers, "strategy": strategy}
    events = [Event("stage", 0, DRIVER, {**start, "max_iter": 2000, "n_params": 431_080}, 1000.0)]
    for clock in range(0, 2000, 20):
        report = {"loss": 2.3 / (1 + clock / 100), "learning_rate": 0.01, "images_per_s": 2000.0}
        spent = {"compute_s": 1.5, "data_s": 0.02, "exchange_s": 0.1}
        events.append(Event("loss", clock, clock // 20 % n_workers, {**report, **spent}, 1000.0 + clock / 50))
    ended = {"stage": "train", "status": "finished", "images_per_s": 1900.0}
    events.append(Event("stage", 2000, DRIVER, ended, 1050.0))
    run.events.write_text("".join(event.to_json() + "\n" for event in events), encoding="utf-8")
    labels = [0, 1] * 50
    write_evaluation(run.evaluation, evaluation([1 - labels[0]] * (number % 10) + labels[number % 10 :], labels))
    status = {"format_version": 1, "stage": "train", "status": "finished", "began": 1.0, "time": 2.0, "text": ""}
    status_text = json.dumps({**status, "done": None, "total": None, "message": "", "warnings": []})
    run.stage_status("train").write_text(status_text, encoding="utf-8")
    write_label(folder, RunLabel(name=f"number {number}", tags=("benchmark",)))
    write_index(folder)


def link_run(source: Path, target: Path) -> None:
    """Make a copy of a run whose files are the same files; folders get the times of the source's folders."""
    for folder, _, names in os.walk(source):
        copy = target / Path(folder).relative_to(source)
        copy.mkdir(parents=True)
        for name in names:
            os.link(Path(folder, name), copy / name)
    for folder, _, _ in os.walk(source):
        stat = os.stat(folder)
        os.utime(target / Path(folder).relative_to(source), ns=(stat.st_atime_ns, stat.st_mtime_ns))


def make_runs(home: Path, n_runs: int) -> None:
    """Write the runs below ``home``."""
    runs = home / "runs" / DAG
    for number in range(min(KINDS, n_runs)):
        write_run(runs / run_name(number), number)
    for number in range(KINDS, n_runs):
        link_run(runs / run_name(number % KINDS), runs / run_name(number))


def run_name(number: int) -> str:
    """Return the name of a run's folder."""
    return f"manual__2026-01-{1 + number // 1000:02}T{number % 1000:06}"


def measure(home: Path, *, profile: bool) -> dict[str, float]:
    """Answer the list in this process, and return the processor times."""
    from deepspark_ops.operators.pages.lists.overview import OverviewPage
    from deepspark_ops.operators.pages.lists.runs import REFRESH_MS, SHARED_S, RunsPage, query_of
    from deepspark_ops.run_index.many_runs import MOST_RUNS

    names = sorted(path.name for path in (home / "runs" / DAG).iterdir())
    known_runs = [KnownRun(DAG, name, "success", 1e9 + at, 1e9 + at, 1e9 + at + 60) for at, name in enumerate(names)]
    page = RunsPage(Places(home, home), lambda dags: known_runs, lambda: {DAG})
    plain, filtered = query_of({}), query_of({"filter": FILTER})
    answer: Any = None

    def seconds(action: Callable[[], Any]) -> float:
        nonlocal answer
        answer = None  # the page keeps no earlier answer, and a kept answer lengthens each collection of garbage
        began = time.process_time()
        answer = action()
        return time.process_time() - began

    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    first_s = seconds(lambda: page.answer({DAG}, plain))
    if profile:
        profiler.disable()
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(25)
    assert (answer["unread"], answer["found"]) == (0, len(known_runs)), "a run has no valid index"
    again_s = seconds(lambda: page.answer({DAG}, plain))
    page.page(answer, nonce="n")  # the template is read once
    page_s = seconds(partial(page.page, answer, nonce="n"))
    filter_s = seconds(lambda: page.answer({DAG}, filtered))
    assert 0 < answer["found"] < len(known_runs)
    page.answer({DAG}, plain)
    refresh_s = seconds(lambda: page.answer({DAG}, plain, is_refresh=True))
    overview = OverviewPage(Places(home, home), page)
    overview_s = seconds(lambda: overview.answer({DAG}, plain))
    looked_over = answer
    assert len(looked_over["runs"]) == MOST_RUNS
    overview_s += seconds(partial(overview.page, looked_over, nonce="n"))
    drawing_s = drawing_seconds(overview.page(looked_over, nonce="n"), looked_over) if find_chromium() else 0.0
    twenty_pages = again_s / SHARED_S + OPEN_PAGES * (refresh_s + page_s) / (REFRESH_MS / 1e3)
    times = {"first_s": first_s, "again_s": again_s, "page_s": page_s, "filter_s": filter_s}
    scatter = {"overview_s": overview_s, "drawing_s": drawing_s, "scatter_s": overview_s + drawing_s}
    return {**times, "refresh_s": refresh_s, **scatter, "twenty_pages": twenty_pages}


def drawing_seconds(page: str, answer: dict[str, Any]) -> float:
    """Return the processor time of Chromium's main thread for a page of many runs, until the charts are drawn."""
    from deepspark_ops.operators.pages.static_files import chart_library, static_file

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.partition("?")[0].rpartition("/")[2]
            file = chart_library() if name == chart_library().name else static_file(name)
            is_data = "format=json" in self.path
            content = file.read_bytes() if file else (json.dumps(answer) if is_data else page).encode()
            kind = {".js": "text/javascript", ".css": "text/css"}.get(file.suffix if file else "", "text/html")
            self.send_response(200)
            self.send_header("Content-Type", "application/json" if is_data else kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with browser_page() as tab:
        tab.call("Performance.enable", timeDomain="threadTicks")
        tab.goto(f"http://127.0.0.1:{server.server_port}/")
        tab.wait_until("document.querySelectorAll('#parallel polyline').length > 900")
        tab.wait_until("document.querySelectorAll('#scatter .point').length > 900")
        metrics = {row["name"]: row["value"] for row in tab.call("Performance.getMetrics")["metrics"]}
        assert tab.troubles == [], tab.troubles
    server.shutdown()
    return float(metrics["TaskDuration"])


def measured_in_process(home: Path) -> dict[str, float]:
    """Return the times of a new process."""
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", str(home)]
    completed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    times: dict[str, float] = json.loads(completed.stdout.splitlines()[-1])
    return times


def main() -> None:
    """Make the runs, measure, and print a line a figure, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="number of runs")
    parser.add_argument("--rounds", type=int, default=3, help="processes; the best of each figure counts")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--profile", action="store_true", help="profile the first list, to the error output")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure, profile=False)))
        return
    with tempfile.TemporaryDirectory(prefix="run-list-") as folder:
        make_runs(Path(folder), options.runs)
        if options.profile:
            measure(Path(folder), profile=True)
        rounds = [measured_in_process(Path(folder)) for _ in range(options.rounds)]
    best = {name: round(min(times[name] for times in rounds), 3) for name in rounds[0]}
    if options.json:
        print(json.dumps({"runs": options.runs, **best}))
        return
    for name, seconds in best.items():
        limit = f" (limit {LIMITS[name]:g})" if name in LIMITS else ""
        print(f"{name} {seconds:.3f}{limit}")


if __name__ == "__main__":
    main()
