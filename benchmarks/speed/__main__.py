"""Time steps and forward passes beside Keras, JAX and PyTorch: ``make bench``, or ``python -m benchmarks.speed``.

First the variants of a framework take turns as processes of one thread, net by net, and the best variant goes on.
``--choice kept`` reads the variant from the JSON. Then this project, the floor and the best variants take turns as
processes of two threads. At last they take turns as two processes of one thread. All processes are pinned. Every
contender builds the net from the same description and first weights, so the first losses must agree.

The JSON gets results net by net, so a call can measure a single net anew. Table and picture come from the JSON. Nets
without a result come first, then nets with the oldest results. After ``--minutes``, a later call goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.speed import page
from benchmarks.speed.kernels import ENVIRONMENT, kernel_share
from benchmarks.speed.nets import NETS, ROOT, write_for_peers
from benchmarks.speed.race import KINDS, ContenderError, Mode, Team, race

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "torch eager": ("torch fused", "torch channels_last", "torch inductor", "torch inductor_channels_last"),
    "keras tensorflow": ("keras tensorflow_xla",),
}
"""The plainest variant of a framework, and the others."""
SINGLE, PAIR, ONE_THREAD = Mode(1, 2), Mode(2, 1), Mode(1, 1)
PROJECT, FLOOR = "ours", "floor"
PEERS = ROOT / "benchmarks" / "peers"
CACHE = ROOT / "build" / "bench"
WITH_DROPOUT, WITHOUT = 0.1, 0.02
"""Allowed relative difference of first losses."""


def team(
    name: str,
    net: str,
    mode: Mode,
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    first_core: int = 0,
) -> Team:
    """Return a contender: ``ours``, ``floor``, or ``FRAMEWORK VARIANT``."""
    if name in (PROJECT, FLOOR):
        command = [sys.executable, str(ROOT / "benchmarks" / "speed" / f"{name}_step.py"), net]
    else:
        framework, variant = name.split()
        python = str(ROOT / ".venv" / "peers" / "bin" / "python")
        command = [python, str(PEERS / f"{framework}_step.py"), str(folder), variant]
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(CACHE / "inductor"), "JAX_COMPILATION_CACHE_DIR": str(CACHE / "jax")}
    log = folder / f"{name.replace(' ', '_')}.log"
    return Team(name, command, mode, log, caches | dict(environment or {}), first_core)


def best(contenders: Mapping[str, Any], kind: str) -> str:
    """Return the peer of the highest rate; failed contenders do not count."""
    rates = {
        name: result[kind]["samples_per_s"]
        for name, result in contenders.items()
        if name not in (PROJECT, FLOOR) and "failure" not in result
    }
    return max(rates, key=lambda name: rates[name])


def check_same_net(contenders: Mapping[str, Any], has_dropout: bool) -> None:
    """Raise ValueError where a contender has other weights, or another first loss, than ours."""
    project = contenders[PROJECT]
    for name, result in contenders.items():
        if name == FLOOR or "failure" in result:
            continue
        limit = (WITH_DROPOUT if has_dropout else WITHOUT) * abs(project["first_loss"])
        is_same = abs(result["first_loss"] - project["first_loss"]) <= limit
        if result["n_weights"] != project["n_weights"] or not is_same:
            msg = (
                f"{name} is another net than ours: {result['n_weights']:,} weights and a first loss of "
                f"{result['first_loss']:.4f}, ours {project['n_weights']:,} and {project['first_loss']:.4f}"
            )
            raise ValueError(msg)


class Measurement:
    """The races of a net.

    Attributes:
        net: Key of NETS.
        folder: Description, weights, data and logs.
        options: Of the command line.
    """

    def __init__(self, net: str, folder: Path, options: argparse.Namespace) -> None:
        """Write what peers read."""
        self.net, self.folder, self.options = net, folder, options
        write_for_peers(net, folder)
        layers = json.loads((folder / "net.json").read_text())["layers"]
        types = {layer["type"] for layer in layers}
        self._has_dropout, self._has_images = "Dropout" in types, "Convolution" in types
        self._multiple = 10 if NETS[net].n_batches >= 10 else 1

    def race(self, names: Sequence[str], mode: Mode, leader: str, n_rounds: int) -> dict[str, Any]:
        """Let contenders take turns."""
        print(f"  {mode.name}: {', '.join(names)}", file=sys.stderr, flush=True)
        return race(
            [team(name, self.net, mode, self.folder, first_core=k) for k, name in enumerate(names)],
            leader,
            NETS[self.net].batch_size,
            multiple=self._multiple,
            block_s=self.options.block_s,
            n_rounds=n_rounds,
        )

    def choose(self) -> list[str]:
        """Return the best variants for step and for forward pass, of PyTorch and of Keras on TensorFlow, and JAX."""
        names = ["keras jax"]
        for leader, variants in VARIANTS.items():
            racing = [leader, *(name for name in variants if self._has_images or "channels_last" not in name)]
            contenders = self.race(racing, ONE_THREAD, leader, 2)["contenders"]
            names += sorted({best(contenders, kind) for kind in KINDS})
        return names

    def kernels(self) -> dict[str, Any]:
        """Return the share of our step outside oneDNN's kernels, measured in a process of one thread."""
        with team(PROJECT, self.net, ONE_THREAD, self.folder, environment=ENVIRONMENT) as process:
            process.wait_ready()
            process.block("step", self._multiple)
            size = process.log.stat().st_size
            block = process.block("step", self._multiple)
            with process.log.open(errors="replace") as log:
                log.seek(size)
                return kernel_share(log, block.seconds)

    def run(self, chosen: Sequence[str] | None) -> dict[str, Any]:
        """Return all results of the net."""
        began, load = time.monotonic(), os.getloadavg()[0]
        names = list(chosen or self.choose())
        modes = {SINGLE.name: self.race([PROJECT, FLOOR, *names], SINGLE, PROJECT, self.options.repeats)}
        check_same_net(modes[SINGLE.name]["contenders"], self._has_dropout)
        finalists = sorted({best(modes[SINGLE.name]["contenders"], kind) for kind in KINDS})
        modes[PAIR.name] = self.race([PROJECT, FLOOR, *finalists], PAIR, PROJECT, self.options.repeats)
        return {
            "cpu": cpu_name(),
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "load_average_before": round(load, 2),
            "repeats": self.options.repeats,
            "chosen": names,
            "modes": modes,
            "kernels": self.kernels(),
            "took_s": round(time.monotonic() - began),
        }


def cpu_name() -> str:
    """Return the processor's name, the number of cores, and the widest vectors."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    fields = dict(line.replace("\t", "").split(":", 1) for line in lines if ":" in line)
    flags = fields.get("flags", "").split()
    widest = [flag for flag in ("amx_tile", "avx512f", "avx2") if flag in flags]
    cores = len(os.sched_getaffinity(0))
    return (
        f"{fields.get('model name', platform.processor()).strip()}, {cores} cores, {widest[0] if widest else 'no AVX2'}"
    )


def oldest_first(names: Sequence[str], results: Mapping[str, Any]) -> list[str]:
    """Return the nets in the order of measuring: without a result, then by age."""
    return sorted(names, key=lambda name: results.get(name, {}).get("date", ""))


def main() -> None:
    """Measure the nets, then write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default=",".join(NETS), help="separated by commas; none: only the pages")
    parser.add_argument("--repeats", type=int, default=3, help="blocks of each contender that count")
    parser.add_argument("--block-s", type=float, default=0.5, help="seconds of our block")
    parser.add_argument("--minutes", type=float, default=15, help="no net begins later; 0: no bound")
    parser.add_argument("--json", type=Path, default=page.RESULTS, help="results, read and written")
    parser.add_argument("--choice", choices=("new", "kept"), default="new", help="kept: the variants of the JSON")
    options = parser.parse_args()
    results = json.loads(options.json.read_text()) if options.json.exists() else {}
    names = [name for name in options.nets.split(",") if name not in ("", "none")]
    if unknown := sorted(set(names) - set(NETS)):
        parser.error(f"unknown nets {', '.join(unknown)}; known: {', '.join(NETS)}")
    n_failed = 0
    ends = time.monotonic() + 60 * options.minutes
    for number, name in enumerate(oldest_first(names, results)):
        if options.minutes and time.monotonic() > ends:
            print(f"{len(names) - number} nets wait for another call, {name} first", file=sys.stderr, flush=True)
            break
        print(name, file=sys.stderr, flush=True)
        chosen = results.get(name, {}).get("chosen") if options.choice == "kept" else None
        with tempfile.TemporaryDirectory(prefix="deepspark-bench-") as folder:
            try:
                results[name] = Measurement(name, Path(folder), options).run(chosen)
            except (ContenderError, ValueError) as error:  # the other nets go on
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                n_failed += 1
                continue
        page.write_json(options.json, results)
        print("\n".join(page.rows(name, results[name])), flush=True)
    if options.json == page.RESULTS:
        page.write_pages(results)
    if n_failed:
        sys.exit(f"failed: {n_failed} of {len(names)} nets, see above")


if __name__ == "__main__":
    main()
