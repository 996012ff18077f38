"""The report of stage check as tables, for a terminal and for a task log."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from deepspark_ops.config.shared_options.bundle_formats import BY_DEFAULT
from deepspark_ops.devices.device_rows import DeviceRow
from deepspark_ops.preflight.report import (
    FormatReport,
    LayerReport,
    MemoryReport,
    MemoryRow,
    NetReport,
    ParityReport,
    PreflightReport,
    ResultReport,
    WorkReport,
)
from deepspark_ops.sizes import size_text

LOG_WIDTH = 150
"""Characters of a line without a terminal."""
_NAMES_SHOWN = 4


def report_view(report: PreflightReport) -> RenderableType:
    """Return the report without errors; the caller prints the errors last."""
    parts: list[RenderableType] = [_format_line(format_report) for format_report in report.formats]
    for net in report.nets:
        parts += [_title(net), _net_table(net), _layer_notes(net)]
    parts += _result_lines(report)
    if report.work is not None:
        parts.append(_work_table(report.work))
    if report.devices:
        parts.append(_device_table(report.devices))
    if report.memory is not None:
        parts += [_memory_rows(report.rows), _memory_view(report.memory)]
    if report.parity:
        parts.append(_parity_table(report.parity))
    parts += [
        Text.from_markup(f"[yellow]note:[/yellow] {escape(problem.finding)}")
        for problem in report.problems
        if problem.severity == "warning"
    ]
    return Group(*parts)


def report_lines(report: PreflightReport) -> list[str]:
    """Return the same as plain lines for a log."""
    console = Console(width=LOG_WIDTH, no_color=True, force_terminal=False, force_jupyter=False)
    with console.capture() as capture:
        console.print(report_view(report), highlight=False)
    return [line.rstrip() for line in capture.get().splitlines() if line.strip()]


def _title(net: NetReport) -> Text:
    text = Text.from_markup(f"\n[bold]{escape(net.name or 'net')}[/bold], {net.title} net")
    for data in net.data:
        shapes = ", ".join(_shape(shape) or "scalar" for shape in data.sample_shapes)
        n_samples = "" if data.n_samples is None else f"{data.n_samples:,} "
        text.append(f"\n  {data.layer} reads {data.source}: {n_samples}samples of {shapes}", style="dim")
        if data.resized:
            text.append(f"\n  {data.resized}")
    return text


def _net_table(net: NetReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True)
    table.add_column("layer", footer="total", overflow="fold")
    table.add_column("type")
    table.add_column("top shapes", overflow="fold")
    table.add_column("parameters", justify="right", footer=f"{net.n_params:,}")
    table.add_column("MFLOP", justify="right", footer=_mega(net.flops))
    table.add_column("MiB", justify="right", footer=_mebi(net.activation_bytes))
    for layer in net.layers:
        table.add_row(
            escape(layer.name),
            layer.type,
            _tops(layer),
            f"{layer.n_params:,}" if layer.n_params else "",
            _mega(layer.flops) if layer.flops else "",
            _mebi(layer.activation_bytes) if layer.activation_bytes else "in place",
        )
    return table


def _layer_notes(net: NetReport) -> Group:
    """Show each note once, with all layers of the note."""
    layers: dict[str, list[str]] = {}
    for layer in net.layers:
        for note in layer.notes:
            layers.setdefault(note, []).append(layer.name)
    return Group(
        *(
            Text.from_markup(f"  [yellow]{escape(_shortened(names))}[/]: {escape(note)}")
            for note, names in layers.items()
        )
    )


def _result_lines(report: PreflightReport) -> list[Text]:
    """Describe the results of evaluation and export."""
    if report.no_result:
        return [Text(f"\nevaluate and export will refuse the net: {report.no_result}")]
    lines = []
    for at, result in enumerate(report.results):
        start = "\nevaluate" if at == 0 else "     and"
        figures = result.figures if result.target is not None else "nothing, there is no target"
        lines.append(Text(f"{start}: {result.text}; gives {figures}"))
    if report.results:
        outputs = ", ".join(_exported(result) for result in report.results)
        lines.append(Text(f"export: {outputs}; as {', '.join(BY_DEFAULT)}, but what a layer has no form in"))
    return lines


def _exported(result: ResultReport) -> str:
    """Return the exported form of a result; for a pair a single branch, because both branches share weights."""
    through = "" if result.activation == "none" else f" through a {result.activation}"
    side = "one side of the pair, " if len(result.outputs) > 1 else ""
    return f'{side}blob "{result.outputs[0]}"{through}'


def _shortened(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def _format_line(format_report: FormatReport) -> Text:
    text = f"{escape(format_report.file)}: {format_report.version} format"
    return Text.from_markup(
        f"[dim]{text}{', upgraded: ' if format_report.upgrades else ''}{'; '.join(format_report.upgrades)}[/]"
    )


def _device_table(devices: Sequence[DeviceRow]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Devices of a worker", title_justify="left")
    table.add_column("device", justify="right")
    table.add_column("layers, first and last", overflow="fold")
    for name in ("layers", "GFLOP a pass", "time", "idle", "memory MiB", "received MiB a pass"):
        table.add_column(name, justify="right")
    for row in devices:
        table.add_row(
            str(row.device),
            escape(" .. ".join(dict.fromkeys((*row.layers[:1], *row.layers[-1:])))),
            f"{len(row.layers):,}",
            f"{row.flops / 1e9:,.2f}",
            f"{row.time_share:.0%}",
            f"{row.idle_share:.0%}",
            _mebi(row.memory_bytes),
            _mebi(row.border_bytes),
        )
    return table


def _memory_rows(rows: Sequence[MemoryRow]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True, title="Memory by layer, MiB")
    table.title_justify = "left"
    table.add_column("layer", footer="total", overflow="fold")
    table.add_column("type")
    for name, total in (
        ("kept of a pass", sum(row.activation_bytes for row in rows)),
        ("with --recompute", sum(row.recompute_bytes for row in rows)),
        ("parameters, gradients, history", sum(row.param_bytes for row in rows)),
        ("all", sum(row.bytes for row in rows)),
    ):
        table.add_column(name, justify="right", footer=_mebi(total))
    for row in rows:
        if row.bytes or row.recompute_bytes:
            amounts = (row.activation_bytes, row.recompute_bytes, row.param_bytes, row.bytes)
            table.add_row(escape(row.layer), row.type, *map(_mebi, amounts))
    return table


def _memory_view(memory: MemoryReport) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, title="Does it fit?", title_justify="left")
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    table.add_row(
        "peak of a step",
        f"about {size_text(memory.step_bytes)}; with --recompute {size_text(memory.recompute_step_bytes)}",
    )
    table.add_row(
        "needed there",
        f"about {size_text(memory.needed_bytes)}; with --recompute {size_text(memory.recompute_needed_bytes)}",
    )
    table.add_row("there is", f"{size_text(memory.room_bytes)} ({escape(memory.room)})")
    table.add_row(
        "largest batch_size",
        f"{memory.largest_batch:,}; with --recompute {memory.recompute_largest_batch:,}",
    )
    words = memory.advice or ("nothing here: the parameters alone are too large",)
    table.add_row("it fits" if memory.fits else "does not fit", "" if memory.fits else "what would help:")
    for line in () if memory.fits else words:
        table.add_row("", escape(line))
    return table


def _parity_table(parity: Sequence[ParityReport]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Parity with recorded outputs of Caffe")
    table.title_justify = "left"
    table.add_column("layer type")
    table.add_column("cases", justify="right")
    table.add_column("passed", justify="right")
    table.add_column("largest relative error", justify="right")
    for row in parity:
        error = "not recorded" if row.largest_error is None else f"{row.largest_error:.1e}"
        table.add_row(row.layer_type, str(row.n_cases), str(row.n_passed), error)
    return table


def _work_table(work: WorkReport) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, title="Training", title_justify="left")
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    rates = ", ".join(f"{point.learning_rate:.6g} at {point.clock:,}" for point in work.learning_rates)
    epochs = f", {work.epochs:.1f} epochs" if work.epochs is not None else ""
    passes = f" x iter_size {work.iter_size}" if work.iter_size > 1 else ""
    table.add_row("solver", f"{work.solver_type}, {work.max_iter:,} minibatches over all workers")
    table.add_row("minibatch", f"batch_size {work.batch_size}{passes}; {work.n_samples:,} samples in all{epochs}")
    table.add_row("effective batch", f"{work.effective_batch:,} samples in work at once by {work.n_workers} workers")
    table.add_row("learning rate", f"{rates} (before rate_scale)")
    memory = (
        f"about {size_text(work.worker_bytes)} each worker, {size_text(work.driver_bytes)} the driver (center"
        f" {size_text(work.center_bytes)}); all on one machine {size_text(work.machine_bytes)}"
    )
    table.add_row("memory", memory)
    table.add_row("each worker", "\n".join(_worker_lines(work)))
    return table


def _worker_lines(work: WorkReport) -> list[str]:
    """Return a line per device of a worker, with equal devices in the same line."""
    numbers_by_row: dict[tuple[str, int, int | None, str], list[int]] = {}
    for row in work.worker_devices:
        numbers_by_row.setdefault((row.computes_on, row.needed_bytes, row.there_bytes, row.room), []).append(row.device)
    lines = []
    for (computes_on, needed, available, room), devices in numbers_by_row.items():
        numbers = f"device {', '.join(map(str, devices))}: " if len(work.worker_devices) > 1 else ""
        held = room if available is None else f"{size_text(available)} there ({room})"
        lines.append(f"{numbers}{computes_on}: needs about {size_text(needed)}, {held}")
    return lines


def _tops(layer: LayerReport) -> str:
    if layer.tops == (layer.name,):
        return _shape(layer.top_shapes[0]) or "scalar"
    return ", ".join(
        escape(f"{top} {_shape(shape) or 'scalar'}") for top, shape in zip(layer.tops, layer.top_shapes, strict=True)
    )


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(str(extent) for extent in shape)


def _mega(flops: int) -> str:
    return f"{flops / 1e6:,.1f}"


def _mebi(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.2f}"
