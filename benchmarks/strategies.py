"""Compare every strategy on real data after the same minibatches: ``python benchmarks/strategies.py [--json]``.

A cell is a run of the stage train (Spark tasks, exchange server, real data), then of the stage evaluate on the test
split. Every option has its default, except strategy and number of workers. All strategies are the same run with one
worker. ``--results`` keeps the result of each cell, so an interrupted benchmark goes on. A cell with another number of
minibatches runs anew, and a failed cell with ``--again``.

``--write`` makes a part of ``docs/evidence/strategies.md`` and ``strategies.png`` from the results (the picture needs
Chromium). ``python -m benchmarks.defaults`` writes the other parts from runs in virtual time.

  lenet          LeNet on the digits of examples/digits, ingested into --work unless --digits names a dataset
  cifar10_quick  cifar10_quick on CIFAR-10, from the dataset that --cifar10 names (examples/cifar10/README.md)
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.evaluate.metrics import METRICS_NAME, read_metrics
from deepspark_ops.events import Event, read_events
from deepspark_ops.exchange.strategies.base import SINGLE_WORKER, find_strategy, strategy_names
from deepspark_ops.processes.spark_submit import run_job
from deepspark_ops.run_paths import RunPaths, write_text_whole

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "evidence"
BEGIN, END = "<!-- real begin -->", "<!-- real end -->"
"""Where the page has these runs."""
TOLERANCE = 0.02
"""Largest share of accuracy that a strategy may lose with two workers; above, its defaults are wrong."""


@dataclass(frozen=True)
class Net:
    """A net to train.

    Attributes:
        title: Name in the table.
        solver: File of the solver.
        minibatches: Length of a run.
        batch_size: Images of a minibatch.
        rate_drop: Share of the run after which the solver's rate falls to a tenth; 0 for the policy of the solver.
    """

    title: str
    solver: str
    minibatches: int
    batch_size: int
    rate_drop: float


NETS = {
    "lenet": Net("LeNet on the digits", "examples/digits/lenet_solver.prototxt", 1_000, 64, 0.0),
    "cifar10_quick": Net("cifar10_quick on CIFAR-10", "examples/cifar10/solver.prototxt", 5_000, 100, 0.8),
}


@dataclass(frozen=True)
class Cell:
    """A run.

    Attributes:
        net: Key of NETS.
        strategy: Name; ``single_worker`` with one worker.
        workers: Number of workers.
        minibatches: Clock at the end.
        accuracy: Top-1 on the test split; None if the run failed.
        train_s: Seconds of training, from the first counted minibatch to the last.
        exchanges: Exchanges of all workers.
        sent_bytes: Bytes between workers and center, both directions.
        comm_period: tau at the end, mean over the workers.
        staleness: Other workers' exchanges between two exchanges of a worker, mean over the loss lines.
        failure: Reason of a missing result, else empty.
        seed: Seed of the solver.
    """

    net: str
    strategy: str
    workers: int
    minibatches: int
    accuracy: float | None = None
    train_s: float | None = None
    exchanges: int = 0
    sent_bytes: int = 0
    comm_period: float = 0.0
    staleness: float = 0.0
    failure: str = ""
    seed: int = 1

    @property
    def key(self) -> str:
        """Key in the file of results."""
        return f"{self.net}/{self.strategy}/{self.workers}" + (f"/{self.seed}" if self.seed > 1 else "")


def overrides(net: Net, minibatches: int, seed: int) -> str:
    """Return the solver fields of a run of this length: a test at the end, and the rate's drop in proportion."""
    text = f"max_iter: {minibatches} snapshot: {minibatches} test_interval: {minibatches} test_initialization: false"
    text += f" display: {max(1, minibatches // 20)} random_seed: {seed}"
    if net.rate_drop:
        text += f" stepvalue: {round(net.rate_drop * minibatches)}"
    return text


def run_cell(cell: Cell, dataset: Path, work: Path) -> Cell:
    """Train and evaluate; a failure is part of the result."""
    net = NETS[cell.net]
    run_dir = Path(tempfile.mkdtemp(prefix=f"{cell.net}-{cell.strategy}-{cell.workers}-", dir=work))
    config = TrainConfig(
        solver=ROOT / net.solver,
        overrides=overrides(net, cell.minibatches, cell.seed),
        dataset=dataset,
        run_dir=run_dir,
        n_workers=cell.workers,
        strategy="easgd" if cell.strategy == SINGLE_WORKER else cell.strategy,
    )
    try:
        run_job("deepspark_ops.train.driver.spark_job", config, on_line=lambda level, text: None, cwd=ROOT)
        run_job(
            "deepspark_ops.evaluate",
            EvaluateConfig(run_dir=run_dir, worst=0),
            on_line=lambda level, text: None,
            cwd=ROOT,
        )
        accuracy = read_metrics(RunPaths(run_dir).evaluation / METRICS_NAME).top1
    except DeepSparkError as error:
        return replace(cell, failure=str(error))
    else:
        return measured(cell, accuracy, list(read_events(RunPaths(run_dir).events)))
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)


def measured(cell: Cell, accuracy: float, events: Sequence[Event]) -> Cell:
    """Return the cell with what a run's events say."""
    end = next(event.data for event in reversed(events) if event.data.get("status") == "finished")
    met = [event for event in events if event.kind == "exchange"]
    reported = sum(event.data["exchanges"] for event in met)
    sent = sum(event.data["bytes"] for event in met)
    periods = {event.worker: event.data["comm_period"] for event in met}
    stale = [event.data["staleness"] for event in events if event.kind == "loss" and "staleness" in event.data]
    images = cell.minibatches * NETS[cell.net].batch_size
    return replace(
        cell,
        accuracy=accuracy,
        train_s=round(images / end["images_per_s"], 1) if "images_per_s" in end else None,
        exchanges=end["exchanges"],
        # Workers report with their loss lines; the last exchanges come after the last line.
        sent_bytes=round(sent / reported * end["exchanges"]) if reported else 0,
        comm_period=sum(periods.values()) / len(periods) if periods else 0.0,
        staleness=round(sum(stale) / len(stale), 2) if stale else 0.0,
    )


def cells_of(
    net: str, strategies: Sequence[str], workers: Sequence[int], minibatches: int, seeds: Sequence[int] = (1,)
) -> Iterator[Cell]:
    """Yield the cells to run, one worker's first: the other cells are compared with one worker's accuracy."""
    for count in sorted(workers):
        names = dict.fromkeys(find_strategy(name).for_workers(count).name for name in strategies)
        for name in names:
            for seed in seeds:
                yield Cell(net, name, count, minibatches, seed=seed)


def ingest_digits(work: Path) -> Path:
    """Return the dataset of the digits, and ingest a missing dataset."""
    folder = work / "digits"
    if not (folder / "dataset.json").exists():
        source = ROOT / "examples/digits/digits8x8-images-idx3-ubyte.gz"
        config = IngestConfig(source=source, output=folder, resize_height=28, resize_width=28, max_pixel=16)
        run_job("deepspark_ops.ingest.spark_job", config, on_line=lambda level, text: None)
    return folder


class Results:
    """The file of results: key -> cell, rewritten after every run."""

    def __init__(self, path: Path) -> None:
        """Read the file of results."""
        self._path = path
        plain = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.cells = {key: Cell(**fields) for key, fields in plain.items()}

    def has(self, cell: Cell, *, retry_failed: bool) -> bool:
        """Return whether the cell has a result of this length; failures count unless ``retry_failed``."""
        recorded = self.cells.get(cell.key)
        return (
            recorded is not None
            and recorded.minibatches == cell.minibatches
            and not (retry_failed and recorded.failure)
        )

    def put(self, cell: Cell) -> None:
        """Keep a cell."""
        self.cells[cell.key] = cell
        plain = {key: asdict(self.cells[key]) for key in sorted(self.cells)}
        write_text_whole(self._path, json.dumps(plain, indent=1) + "\n")

    def of(self, net: str) -> dict[tuple[str, int], list[Cell]]:
        """Return a net's cells by strategy and number of workers, a cell per seed."""
        cells: dict[tuple[str, int], list[Cell]] = {}
        for cell in self.cells.values():
            if cell.net == net:
                cells.setdefault((cell.strategy, cell.workers), []).append(cell)
        return cells


def mean_of(cells: Sequence[Cell]) -> Cell:
    """Return the mean over the seeds with a result; a failed cell without such seeds."""
    sound = [cell for cell in cells if cell.accuracy is not None]
    if not sound:
        return cells[0]
    times = [cell.train_s for cell in sound if cell.train_s is not None]
    return replace(
        sound[0],
        accuracy=fmean(cell.accuracy or 0.0 for cell in sound),
        train_s=fmean(times) if times else None,
        exchanges=round(fmean(cell.exchanges for cell in sound)),
        sent_bytes=round(fmean(cell.sent_bytes for cell in sound)),
        comm_period=fmean(cell.comm_period for cell in sound),
        staleness=fmean(cell.staleness for cell in sound),
    )


# ---------------------------------------------------------------------------------------------------------- table, plot


def table(net: str, seeds: Mapping[tuple[str, int], Sequence[Cell]]) -> list[str]:
    """Return the Markdown lines of a net: the runs, a row per strategy and number of workers, and verdicts."""
    cells = {key: mean_of(seed_cells) for key, seed_cells in seeds.items()}
    single_worker = cells.get((SINGLE_WORKER, 1))
    lengths = sorted({cell.minibatches for cell in cells.values()})
    ran = " or ".join(f"{length:,}" for length in lengths)
    text = f"{ran} minibatches of {NETS[net].batch_size} over all workers."
    if lengths != [NETS[net].minibatches]:
        text += f" The solver's own number is {NETS[net].minibatches:,}; the drop of its rate comes in proportion."
    lines = [f"### {NETS[net].title}", "", text, ""]
    lines += [
        "| strategy | workers | accuracy | against one worker | training | exchanges | sent | tau | staleness |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (strategy, workers), cell in sorted(cells.items(), key=lambda item: (item[0][1], item[0][0])):
        name = "any, alone" if strategy == SINGLE_WORKER else f"`{strategy}`"
        if cell.accuracy is None:
            how = "diverged" if "loss is" in cell.failure else "failed"
            lines.append(f"| {name} | {workers} | {how} | | | | | | |")
            continue
        compared = single_worker is not None and single_worker.accuracy is not None and strategy != SINGLE_WORKER
        change = f"{100 * (cell.accuracy - single_worker.accuracy):+.1f}" if compared and single_worker else ""  # type: ignore[operator]
        seconds = f"{cell.train_s:.0f} s" if cell.train_s is not None else ""
        values = [100 * seed_cell.accuracy for seed_cell in seeds[strategy, workers] if seed_cell.accuracy is not None]
        spread = f" ± {(max(values) - min(values)) / 2:.1f}" if len(values) > 1 else ""
        lines.append(
            f"| {name} | {workers} | {100 * cell.accuracy:.1f}{spread} % | {change} | {seconds} | {cell.exchanges:,} |"
            f" {cell.sent_bytes / 1e6:,.0f} MB | {cell.comm_period:.3g} | {cell.staleness:.1f} |"
        )
    return [*lines, "", *verdict(cells, single_worker), ""]


def verdict(cells: Mapping[tuple[str, int], Cell], single_worker: Cell | None) -> list[str]:
    """Return the strategies, by number of workers, that lose more against one worker than two workers may lose."""
    if single_worker is None or single_worker.accuracy is None:
        return ["One worker has not been run: nothing to compare with."]
    least = single_worker.accuracy - TOLERANCE
    lines = []
    for count in sorted({workers for _, workers in cells if workers > 1}):
        compared = [cell for (_, workers), cell in sorted(cells.items()) if workers == count]
        worse = [cell.strategy for cell in compared if cell.accuracy is not None and cell.accuracy < least]
        failed = [cell.strategy for cell in compared if cell.accuracy is None]
        within = len(compared) - len(worse) - len(failed)
        points = 100 * TOLERANCE
        text = f"- {count} workers: {within} of {len(compared)} strategies within {points:.0f} points of one worker"
        for verdict_text, names in (("further below", worse), ("without a result", failed)):
            if names:
                text += f"; {verdict_text}: {', '.join(f'`{name}`' for name in names)}"
        lines.append(f"{text}.")
    return lines


def page(results: Results) -> str:
    """Return what docs/evidence/strategies.md says of these runs."""
    lines = [""]
    for net in NETS:
        if cells := results.of(net):
            lines += table(net, cells)
    return "\n".join(lines).rstrip() + "\n"


def draw(results: Results, path: Path) -> bool:
    """Draw accuracy and bytes by strategy into a PNG file; return False without Chromium."""
    import plotly.graph_objects as graph
    from plotly.subplots import make_subplots

    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    nets = [net for net in NETS if results.of(net)]
    if browser is None or not nets:
        return False
    figure = make_subplots(
        rows=len(nets),
        cols=2,
        subplot_titles=[f"{NETS[n].title}: {figure_name}" for n in nets for figure_name in ("accuracy, %", "MB sent")],
        vertical_spacing=0.22,
    )
    colours = {1: "#626873", 2: "#2878be", 4: "#d98a1f"}
    for row, net in enumerate(nets, start=1):
        means = {key: mean_of(seed_cells) for key, seed_cells in results.of(net).items()}
        cells = {key: cell for key, cell in means.items() if cell.accuracy is not None}
        names = sorted({name for name, _ in cells if name != SINGLE_WORKER})
        for workers in sorted({count for _, count in cells if count > 1}):
            strategy_cells = [cells[name, workers] for name in names if (name, workers) in cells]
            style = {"name": f"{workers} workers", "marker_color": colours.get(workers, "#2f9270")}
            where = {"row": row, "col": 1}
            x = [cell.strategy for cell in strategy_cells]
            y = [100 * (cell.accuracy or 0.0) for cell in strategy_cells]
            bar = graph.Bar(x=x, y=y, showlegend=row == 1, **style)
            figure.add_trace(bar, **where)
            sent = graph.Bar(x=x, y=[cell.sent_bytes / 1e6 for cell in strategy_cells], showlegend=False, **style)
            figure.add_trace(sent, row=row, col=2)
        scores = [100 * (cell.accuracy or 0.0) for cell in cells.values()] or [0.0]
        figure.update_yaxes(range=[max(0.0, min(scores) - 4), max(scores) + 3], row=row, col=1)
        if single_worker := cells.get((SINGLE_WORKER, 1)):
            level = 100 * (single_worker.accuracy or 0.0)
            text = f"one worker {level:.1f}"
            figure.add_hline(y=level, line_dash="dash", annotation_text=text, row=row, col=1)
    width, height = 1200, 60 + 380 * len(nets)
    figure.update_layout(width=width, height=height, template="plotly_white", barmode="group", font_size=13)
    figure.update_layout(margin={"t": 50, "l": 60, "r": 130, "b": 50})
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder, "figure.html")
        figure.write_html(html, include_plotlyjs=True, config={"staticPlot": True})
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000"]
        shot = [f"--window-size={width},{height}", f"--screenshot={path}", html.as_uri()]
        subprocess.run([browser, *options, *shot], check=True, capture_output=True)
    return True


def main() -> int:
    """Run what is not done yet; 0 if every cell has a result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print all results as one JSON object at the end")
    parser.add_argument("--nets", default="lenet", help=f"separated by commas, of {', '.join(NETS)}")
    parser.add_argument("--workers", default="1,2,4", help="numbers of workers, separated by commas")
    parser.add_argument("--strategies", default=",".join(canonical()), help="separated by commas")
    parser.add_argument("--seeds", default="1", help="separated by commas; the page has means over the seeds")
    parser.add_argument("--minibatches", type=int, help="minibatches of a run; default: the solver's number")
    parser.add_argument("--results", type=Path, default=DOCS / "strategies.json", help="results, read and written")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "strategies", help="folder of unfinished runs")
    parser.add_argument("--digits", type=Path, help="ingested dataset of the digits")
    parser.add_argument("--cifar10", type=Path, help="ingested dataset of CIFAR-10")
    parser.add_argument("--again", action="store_true", help="run failed cells again")
    parser.add_argument("--limit", type=int, default=0, help="stop after this number of runs; 0: run all")
    parser.add_argument(
        "--write", action="store_true", help="write docs/evidence/strategies.md and .png from the results"
    )
    options = parser.parse_args()
    results = Results(options.results)
    is_complete = run_all(options, results)
    if options.write:
        head, _, tail = (DOCS / "strategies.md").read_text(encoding="utf-8").partition(BEGIN)
        write_text_whole(DOCS / "strategies.md", f"{head}{BEGIN}\n{page(results)}{END}{tail.partition(END)[2]}")
        if not draw(results, DOCS / "strategies.png"):
            print("the picture was not drawn: no Chromium, or no results", file=sys.stderr)
    if options.json:
        print(json.dumps({key: asdict(cell) for key, cell in results.cells.items()}, indent=1))
    return 0 if is_complete else 1


def canonical() -> list[str]:
    """Return the strategies without aliases."""
    return sorted({find_strategy(name).name for name in strategy_names()})


def run_all(options: argparse.Namespace, results: Results) -> bool:
    """Run the cells without a result; return whether all cells have a result."""
    options.work.mkdir(parents=True, exist_ok=True)
    workers, seeds = ([int(number) for number in text.split(",")] for text in (options.workers, options.seeds))
    n_runs, is_complete = 0, True
    for net in options.nets.split(","):
        minibatches = options.minibatches or NETS[net].minibatches
        cells = cells_of(net, options.strategies.split(","), workers, minibatches, seeds)
        for cell in [cell for cell in cells if not results.has(cell, retry_failed=options.again)]:
            if options.limit and n_runs >= options.limit:
                return False
            began = time.monotonic()
            result = run_cell(cell, dataset_of(net, options), options.work)
            results.put(result)
            n_runs += 1
            is_complete = is_complete and not result.failure
            shown = (
                result.failure
                if result.accuracy is None
                else f"accuracy={result.accuracy:.4f} train_s={result.train_s}"
            )
            print(f"{result.key}: {shown} ({time.monotonic() - began:.0f} s in all)", file=sys.stderr, flush=True)
    return is_complete


def dataset_of(net: str, options: argparse.Namespace) -> Path:
    """Return a net's dataset."""
    if net == "lenet":
        return options.digits or ingest_digits(options.work)
    if options.cifar10 is None:
        sys.exit("--cifar10 PATH is needed: an ingested CIFAR-10 (examples/cifar10/README.md)")
    return Path(options.cifar10)


if __name__ == "__main__":
    sys.exit(main())
