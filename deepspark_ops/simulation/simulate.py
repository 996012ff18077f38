"""Stage simulate: makes the missing runs in virtual time, and reports on all runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.plan import PlanConfig
from deepspark_ops.config.commands.simulate import SimulateConfig, VirtualRunConfig
from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import configure, find_strategy
from deepspark_ops.exchange.strategies.choice import AUTO, USUAL, Choice, choose_strategy
from deepspark_ops.exchange.strategies.options import FIELD, parse_strategy_options
from deepspark_ops.planning.net_size import NetSize, measure_net
from deepspark_ops.planning.simulator import Hardware, socket_cost
from deepspark_ops.planning.step_time import StepSource, step_time
from deepspark_ops.run_paths import write_text_whole
from deepspark_ops.simulation.advice import advice_of
from deepspark_ops.simulation.page import render_page
from deepspark_ops.simulation.report import REPORT_VERSION, SimulationReport, choose_target, groups_of, row_of
from deepspark_ops.simulation.results import VirtualResult, digest_of_inputs, read_result, result_file
from deepspark_ops.simulation.run_processes import run_all
from deepspark_ops.train.setup.strategy_plan import check_overlap

REPORT_FILE = "simulation.json"
PAGE_FILE = "simulation.html"
UNEVEN_SPREAD = 0.2
"""With a larger spread of speeds, a strategy that does not wait for the slowest worker pays."""
Progress = Callable[[int, int], None]
"""Takes the number of finished runs, and the number of all runs."""


def run_simulation(config: SimulateConfig, progress: Progress = lambda _n_done, _total: None) -> SimulationReport:
    """Make the runs that are missing in ``config.out``, and report on all.

    Raises:
        CaffeImportError: Solver or net.
        ConfigError, DataError: An option or the dataset.
        StageFailed: A run has failed, other than by its training; results so far are kept.
    """
    check_strategies(config)
    plan = _as_planned(config)
    size = measure_net(plan)
    step_s, source, note = step_time(plan, size)
    chosen = choices_of(config, size.n_params, step_s)
    configs = run_configs(config, 1e3 * step_s, {count: choice.name for count, choice in chosen.items()})
    config.out.mkdir(parents=True, exist_ok=True)
    missing = [virtual_config for virtual_config in configs if read_result(virtual_config.result) is None]
    n_processes = host_cores() if config.processes == "auto" else config.processes
    n_done = len(configs) - len(missing)
    progress(n_done, len(configs))

    def one_more(_config: VirtualRunConfig) -> None:
        nonlocal n_done
        n_done += 1
        progress(n_done, len(configs))

    run_all(missing, n_processes, one_more)
    results = [result for virtual_config in configs if (result := read_result(virtual_config.result)) is not None]
    notes = [*([note] if note else []), *(choice.reason for choice in chosen.values())]
    report = make_report(config, size, step_s, source, results, notes)
    write_text_whole(config.out / REPORT_FILE, report.model_dump_json(indent=1) + "\n")
    write_text_whole(config.out / PAGE_FILE, render_page(report))
    return report


def check_strategies(config: SimulateConfig) -> None:
    """Refuse unknown strategies and options.

    Raises:
        ConfigError: Names them.
    """
    for name in config.strategy_names:
        if name != AUTO:
            find_strategy(name, other_choices=(AUTO,))
            parsed = parse_strategy_options(name, config.strategy_options, n_workers=config.worker_counts[-1])
            check_overlap(find_strategy(name), overlap=config.overlap)
            if config.workers_per_host > 1 and configure(name, parsed.options).root_level is None:
                msg = (
                    f"workers_per_host={config.workers_per_host}: every worker exchanges with the server's center, on"
                    " whatever host; for a tree of centers set strategy_options 'center: tree'"
                )
                raise ConfigError(msg)
        elif config.strategy_options:
            msg = f"strategy=auto and {FIELD}={config.strategy_options!r}: they are a strategy's own; name the strategy"
            raise ConfigError(msg)


def choices_of(config: SimulateConfig, n_params: int, step_s: float) -> dict[int, Choice]:
    """Return the choice of ``auto`` for each number of workers above 1; empty without ``auto``."""
    if AUTO not in config.strategy_names:
        return {}
    hardware = Hardware(bandwidth_bytes=config.bandwidth_bytes, latency_s=config.latency_s)
    cost = socket_cost(n_params, find_strategy(USUAL), hardware, wire_dtype="float32", n_servers=1)
    uneven = config.stragglers > 0 or config.deaths > 0 or config.speed_spread > UNEVEN_SPREAD
    share = cost.alone_s / step_s
    counts = [count for count in config.worker_counts if count > 1]
    return {count: choose_strategy(count, uneven=uneven, exchange_share=share) for count in counts}


def run_configs(config: SimulateConfig, step_ms: float, chosen: Mapping[int, str]) -> list[VirtualRunConfig]:
    """Return the runs, by ascending numbers of workers; with one worker all strategies are the same run.

    Args:
        config: The table of runs.
        step_ms: Virtual milliseconds of a minibatch.
        chosen: Number of workers -> what ``auto`` stands for.

    Raises:
        ConfigError: A strategy that cannot take an option.
    """
    shared = {
        name: getattr(config, name) for name in VirtualRunConfig.model_fields if name in type(config).model_fields
    }
    configs: list[VirtualRunConfig] = []
    inputs = ""
    for n_workers in config.worker_counts:
        named = [chosen.get(n_workers, USUAL) if name == AUTO else name for name in config.strategy_names]
        for strategy in dict.fromkeys(named) if n_workers > 1 else named[:1]:
            for seed in config.seed_list:
                varied = {"strategy": strategy, "n_workers": n_workers, "seed": seed, "step_ms": step_ms}
                virtual_config = parse_config(VirtualRunConfig, {**shared, **varied, "result": config.out})
                inputs = inputs or digest_of_inputs(virtual_config)
                configs.append(
                    virtual_config.model_copy(update={"result": result_file(config.out, virtual_config, inputs)})
                )
    return configs


def make_report(
    config: SimulateConfig,
    size: NetSize,
    step_s: float,
    source: StepSource,
    results: list[VirtualResult],
    notes: list[str],
) -> SimulationReport:
    """Return the report on the results.

    Raises:
        ConfigError: No test told anything.
    """
    figure = next((result.figure for result in results if result.figure), "")
    if not figure:
        msg = f"{config.solver}: no run was tested; set test_interval to less than max_iter, and test_iter"
        raise ConfigError(msg)
    target = choose_target(results) if config.target is None else config.target
    rows = tuple(row_of(result, target) for result in results)
    report = SimulationReport(
        format_version=REPORT_VERSION,
        solver=str(config.solver),
        net=size.name,
        n_params=size.n_params,
        step_ms=1e3 * step_s,
        step_source=source,
        network=config.network,
        stragglers=config.stragglers,
        straggler_factor=config.straggler_factor,
        deaths=config.deaths,
        figure=figure,
        higher_is_better=results[0].higher_is_better,
        target=target,
        rows=rows,
        groups=groups_of(rows),
        advice=(),
        notes=(*size.notes, *notes, *_notes(results)),
    )
    return report.model_copy(update={"advice": tuple(advice_of(report))})


def _notes(results: list[VirtualResult]) -> list[str]:
    late = [result for result in results if result.curve and result.curve[-1].clock < result.clock]
    if not late:
        return []
    last = late[0].curve[-1].clock
    progress_text = f"{last:,} of {late[0].clock:,}"
    return [f"the last test is at minibatch {progress_text}: a test_interval that divides max_iter tests the end"]


def _as_planned(config: SimulateConfig) -> PlanConfig:
    same = ("solver", "overrides", "dataset", "step_ms", "named_files")
    return parse_config(PlanConfig, {name: getattr(config, name) for name in same})
