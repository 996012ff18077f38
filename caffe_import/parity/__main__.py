"""Command line of the comparison with Caffe."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape

from caffe_import.errors import CaffeImportError
from caffe_import.extras import require
from caffe_import.parity.case import RECORDED_CASES, Case, Outcome, load_cases, run_case
from caffe_import.parity.setting import Setting
from caffe_import.tensorflow_start import start_lines_dropped

# The JSON has the whole text.
_MAX_LINE = 300


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases of a folder and report; 0 if all passed, 1 if not, 2 for a wrong call."""
    parser = argparse.ArgumentParser(
        prog="python -m caffe_import.parity", description="Compare this importer with recorded outputs of Caffe."
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=RECORDED_CASES, help="folder with an index.json; default: our own cases"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout; the lines go to stderr")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of the cases to run")
    parser.add_argument("--device", type=_device, default="CPU:0", help="CPU:0, GPU:0, ...; CPU:1 is a logical device")
    parser.add_argument(
        "--arithmetic",
        choices=["float32", "tf32", "bfloat16"],
        default="float32",
        help="what convolutions and products are computed in; the bounds are those of device and arithmetic",
    )
    options = parser.parse_args(arguments)
    try:
        require("tensorflow", part="the comparison")
        cases = _chosen(load_cases(options.folder), options.only)
    except (OSError, ValueError, ModuleNotFoundError) as error:
        parser.error(str(error))
    try:
        setting = _start_tensorflow(options.device, options.arithmetic)
    except CaffeImportError as error:
        parser.error(str(error))
    # A case may take minutes: the lines come as the cases end, on stderr where stdout is the JSON object's.
    console = Console(highlight=False, soft_wrap=True, stderr=options.json)
    outcomes = []
    for number, case in enumerate(cases, start=1):
        outcomes.append(_run(case, setting))
        console.print(f"{number}/{len(cases)} " * options.json + _line(outcomes[-1]))
    counts = Counter(outcome.status for outcome in outcomes)
    if options.json:
        report = {status: counts[status] for status in ("passed", "failed", "unsupported")}
        sys.stdout.write(json.dumps({**report, "cases": [asdict(outcome) for outcome in outcomes]}, indent=1) + "\n")
    worst = max((outcome.worst for outcome in outcomes), default=0.0)
    console.print(
        f"{len(outcomes)} cases: {counts['passed']} passed, {counts['failed']} failed, "
        f"{counts['unsupported']} unsupported; largest relative error {worst:.2g}"
    )
    return 0 if outcomes and counts["passed"] == len(outcomes) else 1


def _device(text: str) -> str:
    """Return the text if it names a device."""
    kind, _, number = text.partition(":")
    if kind not in ("CPU", "GPU") or not number.isdecimal():
        msg = f"{text!r} names no device; allowed: CPU:0, GPU:0, GPU:1, ..."
        raise argparse.ArgumentTypeError(msg)
    return text


def _start_tensorflow(device: str, arithmetic: Literal["float32", "tf32", "bfloat16"]) -> Setting:
    """Import TensorFlow without start-up lines, with a single thread, as the solvers' cases need.

    Each case is another net, so a function is traced for every case; TensorFlow's warning about this is suppressed.
    """
    logging.getLogger("tensorflow").addFilter(lambda record: "tf.function retracing" not in record.getMessage())
    with start_lines_dropped():
        from caffe_import.tf_graph.devices import set_up_devices

        kind, number = device.split(":")
        is_gpu = kind == "GPU"
        set_up_devices("gpu" if is_gpu else "cpu", int(number) + 1, n_threads=1, tf32=arithmetic == "tf32")
    name = "" if device == "CPU:0" else f"/device:{device}"
    if arithmetic == "float32":
        return Setting(name, "gpu" if is_gpu else "cpu")
    return Setting(name, arithmetic)


def _chosen(cases: Sequence[Case], only: Sequence[str] | None) -> list[Case]:
    if only is None:
        return list(cases)
    unknown = sorted(set(only) - {case.name for case in cases})
    if unknown:
        msg = f"no case named {', '.join(unknown)} in the folder's index.json"
        raise ValueError(msg)
    return [case for case in cases if case.name in set(only)]


def _run(case: Case, setting: Setting) -> Outcome:
    try:
        return run_case(case, setting)
    except Exception as error:  # noqa: BLE001 - outermost loop: one broken case must not hide the others' results
        sys.stderr.write(f"{case.name}:\n{traceback.format_exc()}\n")
        return Outcome(case.name, case.kind, "failed", 0.0, 0, (f"{type(error).__name__}: {error}",))


def _line(outcome: Outcome) -> str:
    colour = {"passed": "green", "failed": "red", "unsupported": "yellow"}[outcome.status]
    line = f"[{colour}]{outcome.status:11}[/] {outcome.kind:10} {escape(outcome.name):32} {outcome.worst:.1e}"
    return line + "".join(f"\n    {escape(_short(fault))}" for fault in outcome.faults)


def _short(fault: str) -> str:
    return fault if len(fault) <= _MAX_LINE else fault[: _MAX_LINE - 3] + "..."


if __name__ == "__main__":
    sys.exit(main())
