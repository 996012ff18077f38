"""Find the right defaults for many workers by runs of the virtual cluster: ``python -m benchmarks.defaults``.

A study varies one option. A cell is a run as ``deepspark simulate`` makes it (10 Gbit/s, 50 ms a minibatch), with the
same number of minibatches for every number of workers. Runs end before the accuracy reaches its limit, where all
variants would look alike. ``--out`` keeps the result of each run, so an interrupted benchmark goes on. A run whose
defaults have changed is made again. ``studies.py`` describes the nets.

``--write`` adds the results to ``docs/evidence/virtual_runs.jsonl``, where a later call on any machine reads them.
``--write`` also makes the tables of ``docs/evidence/strategies.md`` and ``docs/guides/choose_strategy.md`` (between
marks), the picture, and the table for ``deepspark plan`` and ``--strategy auto``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.defaults.picture import picture
from benchmarks.defaults.runs import RECORDED, Runs, read_recorded, run_all, write_recorded
from benchmarks.defaults.studies import NETS, ROOT, SEEDS, STUDIES, cells_of
from benchmarks.defaults.tables import measured, table, table_of_choice, table_of_defaults
from deepspark_ops.exchange.strategies.measured import MEASURED_FILE
from deepspark_ops.run_paths import write_text_whole

DOCS = ROOT / "docs" / "evidence"
CHOICE_PAGE = ROOT / "docs" / "guides" / "choose_strategy.md"


def main() -> int:
    """Make what is missing, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", default=",".join(STUDIES), help="studies, separated by commas")
    parser.add_argument("--nets", default="table,lenet", help=f"separated by commas, of {', '.join(NETS)}")
    parser.add_argument("--workers", default="", help="only these numbers of workers, separated by commas")
    parser.add_argument(
        "--only", default="", help="only rows and columns with this regular expression, e.g. 'tau 1, 0.3'"
    )
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="separated by commas")
    parser.add_argument("--processes", type=int, default=1, help="runs at the same time, a core each")
    parser.add_argument("--nice", type=int, default=0, help="niceness of the runs")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "runs" / "defaults" / "results", help="results of this machine"
    )
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "defaults", help="folder of the datasets")
    parser.add_argument("--cifar10", type=Path, help="ingested dataset of CIFAR-10")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write both pages on strategies, the picture, the results and the package's file",
    )
    parser.add_argument("--dry", action="store_true", help="make no runs")
    options = parser.parse_args()
    nets, seeds = options.nets.split(","), [int(seed) for seed in options.seeds.split(",")]
    workers = [int(count) for count in options.workers.split(",")] if options.workers else []
    runs = Runs(options.out, options.work, options.cifar10, read_recorded(RECORDED))
    for study in options.studies.split(","):
        cells = [
            cell
            for cell in cells_of(study, nets, seeds, workers)
            if cell.workers == 1 or re.search(options.only, f"{cell.row}, {cell.variant}")
        ]
        if not options.dry:
            run_all(cells, runs, options.processes, options.nice)
        print("\n".join([f"\n{STUDIES[study].title}\n", *table(study, nets, seeds, runs)]))
    if options.write:
        write_all(runs)
    return 0


def write_all(runs: Runs) -> None:
    """Write results, the tables of both pages, the picture and the package's file, of all nets and seeds."""
    nets, seeds = list(NETS), SEEDS
    write_recorded(RECORDED, runs)
    page = DOCS / "strategies.md"
    text = put_between_marks(page.read_text(encoding="utf-8"), "defaults", ["", *table_of_defaults(), ""])
    for study in STUDIES:
        if f"<!-- {study} begin -->" not in text:
            continue
        text = put_between_marks(text, study, ["", *table(study, nets, seeds, runs), ""])
        if f"<!-- {study}_times begin -->" in text:
            times = table(study, nets, seeds, runs, of_times=True)
            text = put_between_marks(text, f"{study}_times", ["", *times, ""])
    write_text_whole(page, text)
    choice = put_between_marks(
        CHOICE_PAGE.read_text(encoding="utf-8"), "choice", ["", *table_of_choice(nets, seeds, runs), ""]
    )
    write_text_whole(CHOICE_PAGE, choice)
    write_text_whole(DOCS / "strategies.svg", picture(nets, seeds, runs))
    rows = json.dumps(measured(nets, seeds, runs), indent=1)
    write_text_whole(MEASURED_FILE, f"{rows}\n")


def put_between_marks(text: str, name: str, lines: Sequence[str]) -> str:
    """Return the page with a study's lines between the study's marks.

    Raises:
        ValueError: The page lacks these marks.
    """
    begin, end = f"<!-- {name} begin -->", f"<!-- {name} end -->"
    head, _, tail = text.partition(begin)
    _, end_mark, foot = tail.partition(end)
    if not end_mark:
        msg = f"no {begin} ... {end}"
        raise ValueError(msg)
    return "\n".join([f"{head}{begin}", *lines, f"{end}{foot}"])


if __name__ == "__main__":
    sys.exit(main())
