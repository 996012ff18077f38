"""A run's events in the words of Caffe's log, for scripts that read such logs.

Source: BVLC Caffe 1.0, src/caffe/solver.cpp and src/caffe/solvers/sgd_solver.cpp; the line numbers are Caffe's.
Readers: tools/extra/parse_log.py, parse_log.sh, extract_seconds.py and plot_training_log.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import Any

from caffe_import.files.prototxt import read_net, read_solver
from caffe_import.net.layer_registry import Phase
from caffe_import.net.output_weights import output_weights
from caffe_import.net.phases import filter_layers
from caffe_import.proto import caffe_pb2
from deepspark_ops.events import NOT_OUTPUTS, Event, read_events
from deepspark_ops.run_paths import RunPaths


def caffe_log_lines(run: RunPaths) -> Iterator[str]:
    """Yield the lines of Caffe's log, without newlines, from the events, solver and nets of a run's folder.

    Values are printed in full precision. Times are UTC. Events that a later start of the run repeats are left out.

    Raises:
        PrototxtError, NetError: Solver or net of the run cannot be read.
    """
    log = _CaffeLog(run)
    for event in _valid_events(run.events):
        yield from log.lines(event)


def _valid_events(path: Path) -> Iterator[Event]:
    """Yield the events of a file, without events that a later start from a snapshot repeats."""
    starts = [(index, event.clock) for index, event in enumerate(read_events(path)) if _is_start(event)]
    for index, event in enumerate(read_events(path)):
        later = [clock for at, clock in starts if at > index]
        is_repeated = any(event.clock > clock or (event.clock == clock and event.kind == "loss") for clock in later)
        if not is_repeated or _is_start(event):
            yield event


def _is_start(event: Event) -> bool:
    return event.kind == "stage" and event.data.get("status") == "started"


class _CaffeLog:
    """Converts events into log lines, one event after the other."""

    def __init__(self, run: RunPaths) -> None:
        self._run = run
        self._solver = read_solver(run.solver)
        self._train_outputs = _outputs(run.net, "TRAIN", self._solver.train_state)
        self._test_outputs: dict[int, Mapping[str, float]] = {}
        self._max_iter = self._solver.max_iter
        self._has_begun = False
        self._newest = 0.0
        self._began = (0, 0.0)
        self._shown: dict[int, tuple[int, float]] = {}

    def lines(self, event: Event) -> Iterator[str]:
        """Yield the lines of an event; no lines for events that Caffe does not log."""
        if _is_start(event):
            yield from self._start(event)
        elif not self._has_begun:
            yield from self._title(event, {})
        match event.kind:
            case "loss":
                yield from self._loss(event)
            case "evaluation":
                yield from self._test(event)
            case "snapshot":
                text = f"Snapshotting to binary proto file {event.data.get('weights')}"
                yield self._line(event, "solver.cpp:447", text)
            case "debug":
                for text in event.data.get("lines", ()):
                    yield self._line(event, "net.cpp:593", text)
            case "stage" if event.data.get("status") == "finished":
                yield self._line(event, "solver.cpp:315", "Optimization Done.")
            case "stage" if event.data.get("status") in ("stopped", "failed"):
                yield self._line(event, "solver.cpp:295", "Optimization stopped early.")

    def _start(self, event: Event) -> Iterator[str]:
        self._began, self._shown = (event.clock, event.time), {}
        self._max_iter = int(event.data.get("max_iter", self._max_iter))
        if not self._has_begun:
            yield from self._title(event, event.data)
        if event.clock:
            yield self._line(event, "solver.cpp:281", f"Restoring previous solver status, iteration {event.clock}")

    def _title(self, event: Event, data: Mapping[str, Any]) -> Iterator[str]:
        self._has_begun = True
        self._began = (event.clock, event.time)
        if (n_workers := int(data.get("n_workers", 1))) > 1:
            text = (
                f"{n_workers} workers, strategy {data.get('strategy')}: an iteration is a minibatch of any worker,"
                " a loss is of one worker; the number behind the time is the worker's"
            )
            yield self._line(event, "solver.cpp:44", text)
        yield self._line(event, "solver.cpp:272", f"Solving {data.get('net', '')}")
        yield self._line(event, "solver.cpp:273", f"Learning Rate Policy: {self._solver.lr_policy}")

    def _loss(self, event: Event) -> Iterator[str]:
        loss, head = event.data.get("loss"), f"Iteration {event.clock}"
        if event.clock == self._max_iter:  # Caffe's last line, after the last step
            yield self._line(event, "solver.cpp:310", f"{head}, loss = {loss}")
            return
        clock, time = self._shown.get(event.worker, self._began)
        self._shown[event.worker] = (event.clock, event.time)
        lapse = event.time - time
        per_s = (event.clock - clock) / (lapse or 1)
        speed = f"({per_s:.6g} iter/s, {lapse:.6g}s/{self._solver.display} iters)"
        yield self._line(event, "solver.cpp:218", f"{head} {speed}, loss = {loss}")
        for text in _output_lines(self._shown_outputs(event), self._train_outputs):
            yield self._line(event, "solver.cpp:237", f"    Train net {text}")
        yield self._line(event, "sgd_solver.cpp:105", f"{head}, lr = {event.data.get('learning_rate')}")

    def _shown_outputs(self, event: Event) -> Mapping[str, Any]:
        """Return the training net's outputs; an event leaves the only output out where the output is the loss."""
        if "outputs" in event.data or len(self._train_outputs) != 1:
            return dict(event.data.get("outputs", {}))
        return dict.fromkeys(self._train_outputs, event.data.get("loss"))

    def _test(self, event: Event) -> Iterator[str]:
        net = int(event.data.get("test_net", 0))
        if net not in self._test_outputs:
            file, states = self._run.test_net(net), self._solver.test_state
            state = states[net] if net < len(states) else caffe_pb2.NetState()
            self._test_outputs[net] = _outputs(file if file.exists() else self._run.net, "TEST", state)
        began = event.time - float(event.data.get("seconds", 0.0))
        title = f"Iteration {event.clock}, Testing net (#{net})"
        yield self._line(event, "solver.cpp:330", title, time=began)
        values = {name: value for name, value in event.data.items() if name not in NOT_OUTPUTS}
        for text in _output_lines(values, self._test_outputs[net]):
            yield self._line(event, "solver.cpp:397", f"    Test net {text}")

    def _line(self, event: Event, source_line: str, text: str, *, time: float | None = None) -> str:
        """Return a line with glog's prefix; times never decrease from line to line."""
        self._newest = max(self._newest, event.time if time is None else time)
        stamp = datetime.fromtimestamp(self._newest, UTC).strftime("%m%d %H:%M:%S.%f")
        return f"I{stamp} {max(0, event.worker):5d} {source_line}] {text}"


def _outputs(file: Path, phase: Phase, state: caffe_pb2.NetState) -> Mapping[str, float]:
    return output_weights(filter_layers(read_net(file), phase=phase, level=state.level, stages=tuple(state.stage)))


def _output_lines(outputs: Mapping[str, Any], weights: Mapping[str, float]) -> Iterator[str]:
    """Yield ``output #I: NAME = VALUE`` for each value of each output, and the value's part in the loss."""
    number = 0
    for name, output in outputs.items():
        if isinstance(output, Mapping):  # a summary of a large output
            shape = output.get("shape", ())
            span = f"mean {output.get('mean')}, from {output.get('min')} to {output.get('max')}"
            yield f"outputs #{number} to #{number + prod(shape) - 1}: {name} has {prod(shape)} values, {span}"
            number += prod(shape)
            continue
        for value in _flat(output):
            yield f"output #{number}: {name} = {value}{_part_of_loss(value, weights.get(name, 0.0))}"
            number += 1


def _flat(output: Any) -> Iterator[float | str]:
    if isinstance(output, Sequence) and not isinstance(output, str):
        for part in output:
            yield from _flat(part)
    else:
        yield output


def _part_of_loss(value: float | str, weight: float) -> str:
    if not weight:
        return ""
    return f" (* {weight:g} = {value if weight == 1 else f'{weight * float(value):.6g}'} loss)"
