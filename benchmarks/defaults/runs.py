"""The runs of the cells: missing runs are made, results are kept."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.defaults.studies import NETS, ROOT, SEEDS, STUDIES, Cell, Fields, capped, cells_of, config_of
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import VirtualRunConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.processes.spark_submit import run_job
from deepspark_ops.run_paths import write_text_whole
from deepspark_ops.simulation.results import (
    CurvePoint,
    VirtualResult,
    digest_of_inputs,
    read_result,
    result_file,
    write_result,
)

RECORDED = ROOT / "docs" / "evidence" / "virtual_runs.jsonl"
PAIRS = "datasets/digit_pairs"
"""Folder of the siamese net's pairs, relative to the repository."""


@dataclass
class Runs:
    """Folders of results and datasets.

    Attributes:
        out: Folder of the results of this machine.
        work: Folder of the datasets that this benchmark ingests.
        cifar10: Dataset of cifar10_quick.
        recorded: File name -> result in ``docs/evidence``, from any machine.
    """

    out: Path
    work: Path
    cifar10: Path | None
    recorded: Mapping[str, VirtualResult] = field(default_factory=dict)
    _inputs: dict[str, str] = field(default_factory=dict)

    def file(self, cell: Cell) -> Path:
        """Return the file of a cell's result; the name has the net's digest, and no digest of the dataset."""
        with capped(cell.options):
            config = config_of(cell)
            inputs = f"{config.solver} {config.overrides}"
            if inputs not in self._inputs:
                self._inputs[inputs] = digest_of_inputs(config)
            return result_file(self.out, config, self._inputs[inputs])

    def config(self, cell: Cell) -> VirtualRunConfig:
        """Return a cell's config with dataset and result file."""
        with capped(cell.options):
            dataset = dataset_of(cell.net, self.work, self.cifar10)
            return config_of(cell).model_copy(update={"dataset": dataset, "result": self.file(cell)})

    def results(self, cells: Sequence[Cell]) -> list[VirtualResult]:
        """Return the results of the cells that have a result."""
        results = [self.recorded.get(file.name) or read_result(file) for file in map(self.file, cells)]
        return [result for result in results if result is not None]


def read_recorded(path: Path) -> dict[str, VirtualResult]:
    """Return the results of ``write_recorded`` by file name; a missing file has no results."""
    results = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        plain = json.loads(line)
        name = plain.pop("file")
        curve = [dict(zip(CurvePoint.model_fields, point, strict=True)) for point in plain["curve"]]
        results[name] = VirtualResult.model_validate({**plain, "curve": curve})
    return results


def write_recorded(path: Path, runs: Runs) -> None:
    """Write the results of all cells, a line each, without results of former defaults."""
    lines = {}
    for study in STUDIES:
        for cell in cells_of(study, list(NETS), SEEDS, ()):
            name = runs.file(cell).name
            for result in runs.results([cell]) if name not in lines else ():
                curve = [[point.clock, round(point.virtual_s, 3), point.value] for point in result.curve]
                lines[name] = json.dumps({"file": name, **result.model_dump(exclude={"curve"}), "curve": curve})
    write_text_whole(path, "".join(f"{line}\n" for line in lines.values()))


def run_all(cells: Sequence[Cell], runs: Runs, processes: int, niceness: int) -> None:
    """Make the missing runs, each in a process with TensorFlow loaded."""
    missing = {(config := runs.config(cell)).result: (config, cell) for cell in cells if not runs.results([cell])}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["deepspark_ops.simulation.virtual_run", __name__])
    runs.out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(processes, context, max_tasks_per_child=1) as pool:
        waiting = iter(missing.values())
        running = {pool.submit(run_cell, config, cell.options, niceness): cell for config, cell in waiting}
        for n_done, future in enumerate(as_completed(running), start=1):
            cell = running[future]
            name = f"{cell.net} {cell.study} {cell.row} {cell.variant} p={cell.workers} seed {cell.seed}"
            print(f"{n_done}/{len(missing)} {name}: {future.result():.0f} s", file=sys.stderr, flush=True)


def run_cell(config: VirtualRunConfig, options: Fields, niceness: int) -> float:
    """Make a run in a new process, write the result, and return the seconds. A failure of the run is a result."""
    os.nice(niceness)
    os.chdir(ROOT)
    from deepspark_ops.simulation.virtual_run import run_virtual

    with capped(options):
        result = run_virtual(config, config.result.with_suffix(".run"))
    write_result(config.result, result)
    return result.host_s


def dataset_of(net: str, work: Path, cifar10: Path | None) -> Path | None:
    """Return a net's dataset, and ingest a missing dataset; None for a net that reads other files."""
    data = NETS[net].data
    if data == "cifar10":
        if cifar10 is None:
            sys.exit("--cifar10 PATH is needed: an ingested CIFAR-10 (examples/cifar10/README.md)")
        return cifar10
    if not data:
        if not (ROOT / PAIRS / "train.txt").exists():
            run_job_file(ROOT / "examples/siamese/make_pairs.py", ROOT / PAIRS)
        return None
    folder = work / data
    if (folder / "dataset.json").exists():
        return folder
    if data == "risk":
        source = work / "table.parquet"
        run_job_file(ROOT / "examples/table_mlp/make_table.py", source)
        config = IngestConfig(source=source, output=folder, feature_columns="f*", label_column="risk")
    else:
        source = ROOT / "examples/digits/digits8x8-images-idx3-ubyte.gz"
        size = {"resize_height": 28, "resize_width": 28} if data == "digits" else {}
        config = parse_config(IngestConfig, {"source": source, "output": folder, "max_pixel": 16, **size})
    run_job("deepspark_ops.ingest.spark_job", config, on_line=lambda level, text: None)
    return folder


def run_job_file(script: Path, *arguments: object) -> None:
    """Run a script of the examples."""
    subprocess.run([sys.executable, script, *map(str, arguments)], check=True)
