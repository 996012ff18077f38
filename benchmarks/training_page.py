"""Measure speed and cost of the page Training: ``python benchmarks/training_page.py [--json] [--seconds 60]``.

Starts ``deepspark ui`` in a new folder and measures what users see:

1. ``ui_s``: from the command to an Airflow that answers, with an empty database. ``ui_cpu_s``: the CPU time of all
   processes until then.
2. ``open_s``: a run of 100,000 events in headless Chromium, from the click to drawn charts, twice. The first time the
   server reads the run (``open_server_cpu_s`` of CPU time). ``update_s``: from a new line of a run's events to the page
   with the event; half of the page's two seconds are in this time.
3. ``idle_cores`` and ``twenty_pages_cores``: CPU seconds per second of all processes of the API server, from
   ``/proc/PID/stat``. Twenty readers ask every two seconds, as the page does, while the run grows by ten events a
   second. ``idle_cores`` is without readers, and ``pages_cores`` is the difference.

Part 2 needs Chromium (``--no-browser`` skips part 2). Other programs disturb, so the best of ``--rounds`` counts.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the browser is the tests'

from deepspark_ops.events import Event  # noqa: E402
from deepspark_ops.local_airflow.api import USER, Api, read_health  # noqa: E402
from deepspark_ops.local_airflow.services import free_port  # noqa: E402
from tests.browser import Page, browser_page  # noqa: E402

EVENTS = 100_000
READERS = 20
POLL_S = 2.0
LIMITS = {"ui_s": 30.0, "open_s": 2.0, "open_again_s": 2.0, "pages_cores": 0.1}
DAG, BIG, GROWING = "deepspark_train", "benchmark-100000", "benchmark-growing"
_DRAWN = (
    "[...document.querySelectorAll('.plot')].filter(plot => plot.querySelector('.scatterlayer .trace')).length === 4"
)
_TICKS = os.sysconf("SC_CLK_TCK")


def write_run(folder: Path, n_events: int, *, age_s: float = 0.0) -> float:
    """Write a run of two workers with ``n_events`` events; return the time of the last event."""
    folder.mkdir(parents=True)
    begin = time.time() - age_s - n_events * 0.05
    data = {"stage": "train", "status": "started", "net": "LeNet", "n_workers": 2, "strategy": "easgd"}
    events = [Event("stage", 0, -1, {**data, "max_iter": 5 * n_events, "n_params": 431_080}, begin)]
    events += [next_event(at, begin + 0.05 * at) for at in range(1, n_events)]
    with (folder / "events.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(event.to_json() + "\n" for event in events)
    return events[-1].time


def next_event(at: int, when: float) -> Event:
    """Return event number ``at``: mostly workers' reports and exchanges, as in a training."""
    worker, clock = at % 2, 4 * at
    if at % 500 == 0:
        test = {"test_net": 0, "accuracy": 1 - 1 / (1 + clock / 1000), "loss": 2.3 / (1 + clock / 1000)}
        return Event("evaluation", clock, 0, test, when)
    if at % 5000 == 1:
        return Event("snapshot", clock, -1, {"weights": f"/run/lenet_iter_{clock}.caffemodel", "seconds": 0.1}, when)
    if at % 50 == 2:
        numbers = {"exchanges_per_s": 400.0, "bytes_per_s": 1e8, "staleness": 0.7, "lost_updates": 0.001}
        return Event("server", clock, -1, numbers, when)
    if at % 4 > 1:
        numbers = {"exchanges": 25, "seconds": 0.06, "bytes": 86_000_000, "p99_ms": 3.1, "comm_period": 4}
        return Event("exchange", clock, worker, {**numbers, "overlaps": 0, "transport": "shm"}, when)
    ripple = (at * 7919 % 1000) / 1000
    report = {"loss": (0.3 + ripple) / (1 + clock / 5000), "learning_rate": 0.01, "images_per_s": 2000 + 300 * ripple}
    spent = {"compute_s": 1.5, "data_s": 0.02, "exchange_s": 0.1 + 0.1 * ripple}
    more = {"staleness": 0.5 + ripple, "distance": 0.3 * ripple, "memory_bytes": 700_000_000}
    return Event("loss", clock, worker, {**report, **spent, **more}, when)


@contextmanager
def airflow(folder: Path) -> Iterator[tuple[Api, int, float]]:
    """Run ``deepspark ui``; yield the API, the process, and the seconds until Airflow answered."""
    port = free_port()
    home = folder / "airflow"
    folders = {"DEEPSPARK_AIRFLOW_HOME": str(home), "DEEPSPARK_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "deepspark_ops.command.cli", "ui", "--port", str(port)]
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **folders, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        for line in process.stdout or ():
            if "Ctrl-C ends it" in line:
                break
        assert read_health(port), "Airflow did not start"
        threading.Thread(target=lambda: list(process.stdout or ()), daemon=True).start()
        yield Api(port, home / "passwords.json"), process.pid, time.monotonic() - began
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(ui: int, *, of_all: bool = False) -> float:
    """Return the CPU time of the API server below ``deepspark ui``, with all children.

    Args:
        ui: The process of ``deepspark ui``.
        of_all: Return the CPU time of ``ui`` and all processes below instead, with ended children.
    """
    parents, commands, used, ended = {}, {}, {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            pid = int(path.name)
            parents[pid], used[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS
            ended[pid] = (int(fields[13]) + int(fields[14])) / _TICKS
            commands[pid] = (path / "cmdline").read_bytes().replace(b"-", b"_")  # Airflow renames its processes
    servers = {pid for pid, words in commands.items() if b"api_server" in words and parents[pid] == ui}
    assert servers, "no API server below deepspark ui"
    servers = {ui} if of_all else servers
    while more := {pid for pid, parent in parents.items() if parent in servers} - servers:
        servers |= more
    return sum(used[pid] + (ended[pid] if of_all else 0.0) for pid in servers)


class Reader:
    """An open page without drawing: asks for new events every two seconds, on one connection."""

    def __init__(self, api: Api, run: str, cookie: str) -> None:
        """Log in by ``cookie``."""
        self._connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)
        self._path = f"/deepspark/runs/{DAG}/{run}/training?"
        self._headers = {"Accept": "application/json", "Cookie": cookie}
        self.cursor = ""
        self.longest_s = 0.0
        self.answers = 0

    def ask(self) -> None:
        """Ask once."""
        began = time.monotonic()
        query = urllib.parse.urlencode({"format": "json", "parts": "true", "since": self.cursor})
        self._connection.request("GET", self._path + query, headers=self._headers)
        answer = self._connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, body
        self.cursor = body["cursor"]
        self.longest_s = max(self.longest_s, time.monotonic() - began)
        self.answers += 1


def grow(path: Path, stop: threading.Event, *, every_s: float = 0.1) -> Callable[[], None]:
    """Return what appends an event every ``every_s`` until ``stop``, with all numbers going on from the file's."""

    def work() -> None:
        at = sum(1 for _ in path.open("rb"))
        while not stop.wait(every_s):
            at += 1
            with path.open("a", encoding="utf-8") as file:
                file.write(next_event(at, time.time()).to_json() + "\n")

    return work


def cores_of_readers(api: Api, ui: int, run: Path, n_readers: int, seconds: float) -> tuple[float, float, int]:
    """Return cores used by the API server while ``n_readers`` watch a run, the longest answer in s, the answers."""
    cookie = f"_token={token(api)}"
    readers = [Reader(api, run.name, cookie) for _ in range(n_readers)]
    for reader in readers:
        reader.ask()  # the first answer is the whole run
        reader.longest_s, reader.answers = 0.0, 0
    stop = threading.Event()
    threads = [threading.Thread(target=grow(run / "events.jsonl", stop), daemon=True)]
    threads += [threading.Thread(target=_watch, args=(reader, stop, at * POLL_S / n_readers), daemon=True)
                for at, reader in enumerate(readers)]  # fmt: skip
    cpu_at_start, began = cpu_seconds(ui), time.monotonic()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    used = (cpu_seconds(ui) - cpu_at_start) / (time.monotonic() - began)
    stop.set()
    for thread in threads:
        thread.join()
    return used, max((reader.longest_s for reader in readers), default=0.0), sum(reader.answers for reader in readers)


def _watch(reader: Reader, stop: threading.Event, first_s: float) -> None:
    stop.wait(first_s)
    while not stop.is_set():
        reader.ask()
        stop.wait(POLL_S)


def token(api: Api) -> str:
    """Return what a browser keeps of a login."""
    api.call("GET", "/dags")
    return api._token


def log_in(page: Page, api: Api, url: str) -> None:
    """Log in, by the form."""
    page.goto(url)
    page.fill("input[name=username]", USER)
    page.fill("input[name=password]", api.password)
    page.click("button[type=submit]")
    page.wait_until("!location.href.includes('login') && document.readyState === 'complete'")


def seconds_to_open(page: Page, url: str) -> float:
    """Return the seconds from the navigation to four drawn charts, by the page's own clock."""
    page.call("Page.navigate", url="about:blank")
    page.call("Page.navigate", url=url)
    page.wait_until(f"location.href.includes('/training') && {_DRAWN}")
    return page.evaluate("Math.max(...performance.getEntriesByName('drawn').map(mark => mark.startTime))") / 1e3


_MARK_DRAWN = """
new MutationObserver((_, watch) => {
  if ([...document.querySelectorAll('.plot')].filter(p => p.querySelector('.scatterlayer .trace')).length === 4) {
    watch.disconnect();
    requestAnimationFrame(() => performance.mark('drawn'));
  }
}).observe(document, {childList: true, subtree: true});
"""


def seconds_to_update(page: Page, url: str, events: Path) -> float:
    """Return the seconds from a new event to the event's clock in the page's header."""
    page.goto(url)
    page.wait_until(_DRAWN)
    at = sum(1 for _ in events.open("rb")) + 1
    at += 1 if at % 4 > 1 else 0
    began = time.monotonic()
    event = next_event(at * 4 + 1, time.time())  # a report
    with events.open("a", encoding="utf-8") as file:
        file.write(event.to_json() + "\n")
    page.wait_until(f"document.querySelector('.bar').innerText.startsWith('{event.clock:,}')")
    return time.monotonic() - began


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return all figures."""
    with tempfile.TemporaryDirectory(prefix="training-page-") as scratch, airflow(Path(scratch)) as (api, ui, ui_s):
        ui_cpu_s = cpu_seconds(ui, of_all=True)
        runs = Path(scratch) / "home" / "runs" / DAG
        write_run(runs / BIG, EVENTS)
        write_run(runs / GROWING, 10_000)
        site = f"http://127.0.0.1:{api.port}/deepspark/runs/{DAG}"
        figures: dict[str, Any] = {"ui_s": ui_s, "ui_cpu_s": ui_cpu_s}
        if not options.no_browser:
            figures |= _in_browser(api, ui, site, runs / GROWING)
        print(figures, file=sys.stderr)
        rounds = []
        for _ in range(options.rounds):
            idle, _, _ = cores_of_readers(api, ui, runs / GROWING, 0, options.seconds / 2)
            rounds.append((idle, *cores_of_readers(api, ui, runs / GROWING, READERS, options.seconds)))
        idle, busy, longest_s, answers = min(rounds, key=lambda round_figures: round_figures[1] - round_figures[0])
        cores = {"idle_cores": idle, "twenty_pages_cores": busy, "pages_cores": busy - idle}
        counts = {"answers": answers, "answer_cpu_ms": 1e3 * (busy - idle) * options.seconds / answers}
        return figures | cores | {"longest_answer_s": longest_s} | counts


def _in_browser(api: Api, ui: int, site: str, growing: Path) -> dict[str, Any]:
    with browser_page() as page:
        page.resize(1280, 900)
        log_in(page, api, f"{site}/{GROWING}/training")
        page.wait_until(_DRAWN)  # plotly.js is in the browser's cache now, as for anyone who has seen a run
        page.call("Page.addScriptToEvaluateOnNewDocument", source=_MARK_DRAWN)
        url = f"{site}/{BIG}/training"
        cpu_at_start = cpu_seconds(ui)
        first = seconds_to_open(page, url)
        cpu = cpu_seconds(ui) - cpu_at_start
        later_open_s = min(seconds_to_open(page, url) for _ in range(3))
        sampling_text = str(page.evaluate("document.getElementById('sampling').textContent"))
        updates = [seconds_to_update(page, f"{site}/{GROWING}/training", growing / "events.jsonl") for _ in range(3)]
        opened = {"open_s": first, "open_server_cpu_s": cpu, "open_again_s": later_open_s}
        return {**opened, "update_s": min(updates), "says": sampling_text}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a round with twenty readers")
    parser.add_argument("--rounds", type=int, default=1, help="rounds; the cheapest counts")
    parser.add_argument("--no-browser", action="store_true", help="measure the API server alone")
    figures = measure(parser.parse_args())
    within = {name: figures[name] <= limit for name, limit in LIMITS.items() if name in figures}
    if "--json" in sys.argv:
        print(json.dumps({**figures, "limits": LIMITS, "within": within}))
        return
    for name, value in figures.items():
        shown = f"{value:.3f}" if isinstance(value, float) else value
        limit = f"   limit {LIMITS[name]:g}: {'kept' if within[name] else 'NOT KEPT'}" if name in within else ""
        print(f"{name:20} {shown}{limit}")


if __name__ == "__main__":
    main()
