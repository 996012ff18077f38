"""The ``deepspark`` command: every stage without Airflow.

Options are made from the config models (``config.py``), which stay the only place that declares a default, a bound
or a description; whatever is wrong with a value is said by the model, in the words the DAG uses. Stages are imported
when they run, so ``--help`` loads neither TensorFlow nor Spark. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import inspect
import logging
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import annotated_types
import typer
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from caffe_import.errors import CaffeImportError
from deepspark_ops.config import (
    CheckConfig,
    Config,
    EvaluateConfig,
    ExportConfig,
    IngestConfig,
    PlanConfig,
    StageConfig,
    TrainConfig,
    parse_config,
)
from deepspark_ops.errors import ConfigError, DeepSparkError
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.spark_submit import (
    FAILED,
    USER_MISTAKE,
    LineHandler,
    StageFailed,
    file_trouble,
    require_java,
    run_job,
)

if TYPE_CHECKING:
    from deepspark_ops.train.live_view import LiveView

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells give it: 128 + SIGINT."""

_MAIN_PANEL = "Options"
_REST_PANEL = "Further options"
_CLOCK = re.compile(r"\bclock=(\d+)")
_COUNT = re.compile(r"\b(\d[\d,]*)/(\d[\d,]*)\b")
_TOLD_BY_TABLE = re.compile(r"worker \d+ loss |driver server ")
_DRAWN_PER_S = 4
_SHORT_NAMES = {"n_workers": "--workers"}
"""Field -> a second name of its option."""
_STYLES = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}

app = typer.Typer(
    name="deepspark",
    help="Train Caffe nets on Spark with asynchronous elastic averaging, then score and export them.\n\n"
    "A run goes: check, ingest, train, evaluate, export.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def main() -> None:
    """Entry point of the ``deepspark`` script."""
    app()


# -------------------------------------------------------------------------------------------------- options from models


def stage_command(
    model: type[Config], *, name: str, positional: str, flags: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the decorated function as a command whose options are the fields of ``model``.

    Args:
        model: Declares the options.
        name: The command's name.
        positional: Field that is given by position instead of by name.
        flags: Further switches that are no part of the config, name -> help; passed on as keywords.
    """
    flags = dict(flags or {})

    def register(run: Callable[..., None]) -> Callable[..., None]:
        def command(**values: Any) -> None:
            switches = {flag: bool(values.pop(flag)) for flag in flags}
            with told_to_user():
                given = {
                    field: _plain_value(value, model.model_fields[field])
                    for field, value in values.items()
                    if value is not None
                }
                run(absolute_paths(parse_config(model, given)), **switches)

        parameters = [
            _argument(field, info) if field == positional else _option(field, info)
            for field, info in sorted(model.model_fields.items(), key=lambda item: item[0] != positional)
        ]
        parameters += [
            _keyword(flag, bool, typer.Option(False, f"--{flag}", help=text)) for flag, text in flags.items()
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__doc__ = run.__doc__
        app.command(name)(command)
        return run

    return register


def _argument(name: str, info: FieldInfo) -> inspect.Parameter:
    return _keyword(name, str, typer.Argument(metavar=name.upper(), help=_help(info), show_default=False))


def _option(name: str, info: FieldInfo) -> inspect.Parameter:
    """Return a click option as text: the model turns text into values, and says what is wrong with one."""
    extra = info.json_schema_extra
    is_main = (isinstance(extra, dict) and extra.get("form")) or Path in _members(info.annotation)
    common: dict[str, Any] = {
        "help": _help(info),
        "rich_help_panel": _MAIN_PANEL if is_main else _REST_PANEL,
        "show_default": False,
    }
    flag = f"--{name.replace('_', '-')}"
    if info.annotation is bool:
        negated = flag.replace("--", "--no-", 1)
        return _keyword(name, bool | None, typer.Option(None, f"{flag}/{negated}", **common))
    flags = (flag, _SHORT_NAMES[name]) if name in _SHORT_NAMES else (flag,)
    option = typer.Option(... if info.is_required() else None, *flags, metavar=_metavar(info), **common)
    return _keyword(name, str if info.is_required() else str | None, option)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain_value(value: str | bool, info: FieldInfo) -> str | bool | int | float:
    """Return a number where the field takes one and the text is one; messages then show it as the user wrote it."""
    kinds = {get_args(member)[0] if hasattr(member, "__metadata__") else member for member in _members(info.annotation)}
    for kind in (int, float):
        if isinstance(value, str) and kind in kinds:
            with suppress(ValueError):
                return kind(value)
    return value


def _help(info: FieldInfo) -> str:
    text = info.description or ""
    if bounds := _bounds(info):
        text += f" ({bounds})"
    if not info.is_required() and info.default not in (None, ""):
        shown = ("yes" if info.default else "no") if isinstance(info.default, bool) else info.default
        text += f" [default: {shown}]"
    return escape(text)


def _members(annotation: Any) -> list[Any]:
    """Return the members of a union, without None; of another annotation itself."""
    if get_origin(annotation) is None or get_origin(annotation) is Literal:
        return [] if annotation is NoneType else [annotation]
    if hasattr(annotation, "__metadata__"):
        return [annotation]
    return [member for part in get_args(annotation) for member in _members(part)]


def _metavar(info: FieldInfo) -> str:
    words: list[str] = []
    for member in _members(info.annotation):
        plain = get_args(member)[0] if hasattr(member, "__metadata__") else member
        if get_origin(plain) is Literal:
            words += [str(word) for word in get_args(plain)]
        else:
            words.append({int: "INTEGER", float: "NUMBER", Path: "PATH"}.get(plain, "TEXT"))
    return "|".join(words)


def _bounds(info: FieldInfo) -> str:
    """Return a numeric field's bounds in words, e.g. ``1 to 10000`` or ``above 0``."""
    marks = list(info.metadata)
    for member in _members(info.annotation):
        for mark in getattr(member, "__metadata__", ()):
            marks += mark.metadata if isinstance(mark, FieldInfo) else [mark]
    found: dict[str, Any] = {}
    for mark in marks:
        for kind in (annotated_types.Ge, annotated_types.Gt, annotated_types.Le, annotated_types.Lt):
            if isinstance(mark, kind):
                found[kind.__name__] = getattr(mark, kind.__name__.lower())
    if "Ge" in found and "Le" in found:
        return f"{found['Ge']} to {found['Le']}"
    words = {"Ge": "at least", "Gt": "above", "Le": "at most", "Lt": "below"}
    return ", ".join(f"{words[kind]} {bound}" for kind, bound in found.items())


def absolute_paths(config: Config) -> Config:
    """Return the config with every path made absolute: a run's config is read again from other folders."""
    paths = {
        name: Path.cwd() / value
        for name, value in config
        if isinstance(value, Path) and Path in _members(type(config).model_fields[name].annotation)
    }
    return config.model_copy(update=paths)


# -------------------------------------------------------------------------------------------------- what the user sees


@contextmanager
def told_to_user() -> Iterator[None]:
    """Turn what a user can act on into one message on stderr and an exit code, without a traceback.

    Raises:
        typer.Exit: 2 for what must be corrected, 1 for a stage that may succeed another time, 130 after Ctrl-C.
    """
    try:
        yield
    except (DeepSparkError, CaffeImportError) as error:
        _stderr().print(f"[red]error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        is_mistake = not isinstance(error, StageFailed) or error.is_user_mistake
        raise typer.Exit(USER_MISTAKE if is_mistake else FAILED) from None
    except OSError as error:
        if (told := file_trouble(error)) is None:
            raise
        _stderr().print(f"[red]error:[/red] {escape(told[1])}", highlight=False, soft_wrap=True)
        raise typer.Exit(told[0]) from None
    except KeyboardInterrupt:
        _stderr().print("interrupted", highlight=False)
        raise typer.Exit(INTERRUPTED) from None


def _stderr() -> Console:
    return Console(stderr=True)


def _say(text: str) -> None:
    Console().print(escape(text), highlight=False, soft_wrap=True)


class StageDisplay:
    """Shows a stage at work: lines, and on a terminal a bar under them. Used by one thread, in a ``with`` block."""

    def __init__(self, title: str, *, total: int | None = None) -> None:
        """Name the stage; ``total`` is what the bar counts to, None if that is not known beforehand."""
        self._console = _stderr()
        self._held: list[str] = []
        self._reached = 0
        self._progress: Progress | None = None
        if self._console.is_terminal:
            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._progress.add_task(title, total=total)

    def __enter__(self) -> StageDisplay:
        """Show the bar."""
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Take the bar away; show error lines that the raised message does not repeat."""
        if self._progress:
            self._progress.stop()
        known = str(error).splitlines() if error else []
        for line in self._held:
            if line not in known:
                self._print(logging.ERROR, line)

    def line(self, level: int, text: str) -> None:
        """Show one line of a job. Error lines wait, since the last are the job's message, which comes at the end."""
        if level >= logging.ERROR:
            self._held.append(text)
            return
        for held in self._held:
            self._print(logging.ERROR, held)
        self._held.clear()
        self._print(level, text)
        self._move_bar(text)

    def _move_bar(self, text: str) -> None:
        """Read how far the job is from its own words: ``clock=200``, or ``3,000/10,000``."""
        if self._progress is None:
            return
        if clock := _CLOCK.search(text):
            # Workers report out of step; the bar shows the farthest.
            self._reached = max(self._reached, int(clock[1]))
            self._progress.update(self._task, completed=self._reached)
        elif count := _COUNT.search(text):
            done, total = (int(number.replace(",", "")) for number in count.groups())
            self._progress.update(self._task, completed=done, total=total)

    def _print(self, level: int, text: str) -> None:
        self._console.print(escape(text), style=_STYLES.get(level, ""), highlight=False, soft_wrap=True)


class TrainDisplay(StageDisplay):
    """Shows a run: on a terminal drawn live from its events, below the lines that the table does not tell."""

    def __init__(self, run_dir: Path, *, max_iter: int) -> None:
        """Look at the events of ``run_dir`` from now on."""
        super().__init__("train", total=max_iter)
        self._live: Live | None = None
        if self._progress is None:
            return
        from deepspark_ops.train.live_view import LiveView
        from deepspark_ops.train.run_watch import EventTail

        self._progress = None
        self._tail = EventTail(RunPaths(run_dir).events)
        self._view = LiveView(max_iter=max_iter)
        self._live = Live(console=self._console, get_renderable=self._draw, refresh_per_second=_DRAWN_PER_S)

    def __enter__(self) -> TrainDisplay:
        """Begin to draw."""
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Draw the end, and leave it standing."""
        if self._live:
            self._live.stop()
        super().__exit__(kind, error, trace)

    def line(self, level: int, text: str) -> None:
        """Show one line, unless the table shows what it says."""
        if self._live is None or not _TOLD_BY_TABLE.match(text):
            super().line(level, text)

    def _draw(self) -> LiveView:
        """Return the view after what has happened since; called by whoever draws, one at a time."""
        for event in self._tail.read():
            self._view.take(event)
        return self._view


def _run_stage_process(module: str, config: StageConfig, display: StageDisplay) -> None:
    on_line: LineHandler = display.line
    with display:
        run_job(module, config, on_line=on_line)


# ------------------------------------------------------------------------------------------------------------- commands


@stage_command(CheckConfig, name="check", positional="solver", flags={"json": "Print the report as JSON"})
def check(config: CheckConfig, *, json: bool) -> None:
    """Read a solver and its nets and report layers, shapes, cost and problems, before any cluster time is spent."""
    from deepspark_ops.preflight.check import run_check
    from deepspark_ops.preflight.table import LOG_WIDTH, report_view

    report = run_check(config)
    if json:
        sys.stdout.write(report.model_dump_json(indent=1) + "\n")
    else:
        # A file or a pipe has no width of its own.
        console = Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
        console.print(report_view(report), highlight=False)
    if report.errors:
        raise ConfigError("\n".join(report.errors))


@stage_command(PlanConfig, name="plan", positional="solver", flags={"json": "Print the prediction as JSON"})
def plan(config: PlanConfig, *, json: bool) -> None:
    """Predict images/s, staleness, server load and time per epoch for 1 to 10,000 workers, and what to choose."""
    from deepspark_ops.preflight.plan import make_plan
    from deepspark_ops.preflight.plan_picture import write_plan_picture
    from deepspark_ops.preflight.plan_view import plan_view
    from deepspark_ops.preflight.table import LOG_WIDTH

    report = make_plan(config)
    write_plan_picture(report, config.plot)
    if json:
        sys.stdout.write(report.model_dump_json(indent=1) + "\n")
    else:
        Console(width=None if sys.stdout.isatty() else LOG_WIDTH).print(plan_view(report), highlight=False)


@stage_command(IngestConfig, name="ingest", positional="source")
def ingest(config: IngestConfig) -> None:
    """Turn raw files into Caffe-readable shards, with Spark: OUTPUT/train and OUTPUT/test."""
    require_java()
    _run_stage_process("deepspark_ops.ingest.spark_job", config, StageDisplay("ingest"))
    _say(f"dataset={config.output}")


@stage_command(TrainConfig, name="train", positional="solver")
def train(config: TrainConfig) -> None:
    """Train the solver's net with N Spark workers that exchange parameters with a center."""
    from caffe_import.solver_spec import load_solver

    max_iter = load_solver(config.solver, config.overrides).spec.max_iter
    require_java()
    was_there = config.run_dir.exists()
    if config.parity:
        _certify(config)
    try:
        _run_stage_process("deepspark_ops.train.spark_job", config, TrainDisplay(config.run_dir, max_iter=max_iter))
    except StageFailed:
        certificate = RunPaths(config.run_dir).parity
        if not was_there and certificate.exists() and list(config.run_dir.iterdir()) == [certificate]:
            shutil.rmtree(config.run_dir)  # the run was refused: there is nothing that it could certify
        raise
    _say(f"run={config.run_dir}")


def _certify(config: TrainConfig) -> None:
    """Keep the comparison with recorded outputs of Caffe in the run's folder, before anything is trained.

    Raises:
        ConfigError: The solver has errors, or a case failed.
    """
    from deepspark_ops.preflight.check import run_check

    shared = {name: getattr(config, name) for name in ("solver", "overrides", "weights", "dataset", "n_workers")}
    report = run_check(CheckConfig(**shared, parity=True, run_dir=config.run_dir))
    if report.errors:
        raise ConfigError("\n".join(report.errors))
    _say(f"parity={RunPaths(config.run_dir).parity}")


@stage_command(EvaluateConfig, name="evaluate", positional="run_dir")
def evaluate(config: EvaluateConfig) -> None:
    """Score a run's last snapshot: metrics.json and report.html, a page that needs no network."""
    from deepspark_ops.evaluate.metrics import METRICS_NAME, REPORT_NAME, read_metrics

    _run_stage_process("deepspark_ops.evaluate", config, StageDisplay("evaluate"))
    output = config.output or RunPaths(config.run_dir).evaluation
    _say(f"{read_metrics(output / METRICS_NAME).summary()} report={output / REPORT_NAME}")


@stage_command(ExportConfig, name="export", positional="run_dir")
def export(config: ExportConfig) -> None:
    """Write the bundle: SavedModel, .caffemodel, deploy.prototxt, labels, mean, metrics and a manifest, checked."""
    _run_stage_process("deepspark_ops.export", config, StageDisplay("export"))
    _say(f"bundle={config.output or RunPaths(config.run_dir).bundle}")


if __name__ == "__main__":
    main()
