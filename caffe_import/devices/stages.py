"""Cuts a net into consecutive stages, one per device, balanced by memory and time.

The cuts are optimal among all cuts of the net's order of execution (dynamic programmes over the positions of the cuts).
In a net of more than ``MOST_RUNS`` parts the cuts are first sought at every so many parts, then around these cuts,
until the candidates are single parts apart: the work grows little faster than the net, and the cuts are the best of the
candidates. No device needs more than ``MEMORY_SLACK`` times the memory of the best balance. Among these cuts the
slowest stage is as fast as possible; among equals the fewest bytes cross borders.

An in-place layer stays with the maker of the blob, and a Split with the maker of the bottom, as does a Scale of one
kernel with a BatchNorm. Layers without bottoms (data) are on the device of their first reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from math import ceil, inf
from typing import Final

from caffe_import.devices.compute_plan import Placement
from caffe_import.devices.device_load import LoadCount, StageCost
from caffe_import.devices.fused_layers import fused_scales
from caffe_import.devices.step_memory import NetCosts, StepShape
from caffe_import.devices.unnamed_layers import place_all
from caffe_import.errors import PlacementError
from caffe_import.net.net_spec import NetSpec

MEMORY_SLACK: Final = 1.25
MOST_RUNS: Final = 256
"""Runs of parts that a search joins to stages, at most; four times the stages, if these are more."""
Costs = Sequence[Sequence[StageCost]]
"""``costs[first][last - first]``: the runs of parts first to last on one device."""


def auto_placement(net: NetSpec, n_devices: int, step: StepShape) -> Placement:
    """Return the placement of ``net`` in ``n_devices`` consecutive stages; stage k is on device k.

    The placement is the same on every CPU: no columns count.

    Raises:
        PlacementError: The net has fewer parts than there are devices.
    """
    parts = uncut_parts(net)
    if len(parts) < n_devices:
        msg = (
            f"placement=auto: gpus_per_worker={n_devices}, but the training net can be cut into at most {len(parts)}"
            " stages; give fewer devices, or a placement file that splits layers"
        )
        raise PlacementError(msg)
    costs = NetCosts(net, replace(step, makes_columns=False))
    borders = [0, *_cuts(costs, parts, n_devices), len(parts)]
    named = {
        net.layers[position].name: (device,)
        for device, (first, stop) in enumerate(pairwise(borders))
        for part in parts[first:stop]
        for position in part
    }
    return place_all(named, net, n_devices)


def uncut_parts(net: NetSpec) -> tuple[tuple[int, ...], ...]:
    """Return groups of layer positions in net order; data layers and their Splits are in no group."""
    makers: dict[str, int] = {}
    sources: set[int] = set()
    scales = {scale.name for scale in fused_scales(net).values()}
    # Layer -> the farthest layer that stays with it; everything between stays, too.
    stays_until: dict[int, int] = {}
    for position, layer in enumerate(net.layers):
        stays = layer.type == "Split" or layer.name in scales
        above = {makers[blob] for blob in layer.bottoms if blob in layer.tops or stays}
        if not layer.bottoms or (layer.type == "Split" and above <= sources):
            sources.add(position)
        stays_until.update(dict.fromkeys(above - sources, position))
        makers.update((blob, position) for blob in layer.tops)
    parts: list[list[int]] = []
    joined_until = -1
    for position in range(len(net.layers)):
        if position not in sources:
            if position <= joined_until:
                parts[-1].append(position)
            else:
                parts.append([position])
        joined_until = max(joined_until, stays_until.get(position, -1))
    return tuple(map(tuple, parts))


def _cuts(costs: NetCosts, parts: Sequence[Sequence[int]], n_stages: int) -> list[int]:
    """Return the first part of every stage but the first, with the distances of candidates falling to one."""
    most_runs = max(MOST_RUNS, 4 * n_stages)  # rounded distances leave at least half, enough for all stages
    distance = ceil(len(parts) / most_runs)
    candidates = list(range(distance, len(parts), distance))
    while True:
        chosen = best_cuts(_costs_of_runs(costs, parts, candidates), n_stages)
        cuts = [candidates[run - 1] for run in chosen]
        if distance == 1:
            return cuts
        around = {part for cut in cuts for part in range(max(cut - distance, 0) + 1, min(cut + distance, len(parts)))}
        distance = max(1, ceil(len(around) / most_runs))
        candidates = sorted({*cuts, *sorted(around)[::distance]})


def _costs_of_runs(costs: NetCosts, parts: Sequence[Sequence[int]], candidates: Sequence[int]) -> Costs:
    """Return the costs of all runs that begin and end at a candidate or at an end of the net."""
    ends = (*candidates, len(parts))
    starts = (0, *candidates)
    costs_of_runs = []
    for number in range(len(starts)):
        count = LoadCount(costs)
        row = []
        for start, end in zip(starts[number:], ends[number:], strict=True):
            for position in chain.from_iterable(parts[start:end]):
                count.add(position)
            row.append(count.cost())
        costs_of_runs.append(row)
    return costs_of_runs


def best_cuts(costs: Costs, n_stages: int) -> list[int]:
    """Return the first run of every stage but the first, by the order of aims that the module names."""

    def memory(cost: StageCost) -> float:
        return cost.memory_bytes

    least, _ = _cheapest(costs, n_stages, memory, max)
    allowed = MEMORY_SLACK * least

    def time_within_memory(cost: StageCost) -> float:
        return cost.time if cost.memory_bytes <= allowed else inf

    shortest, _ = _cheapest(costs, n_stages, time_within_memory, max)

    def border_within_both(cost: StageCost) -> float:
        return cost.border_bytes if time_within_memory(cost) <= shortest else inf

    _, cuts = _cheapest(costs, n_stages, border_within_both, float.__add__)
    return cuts


def _cheapest(
    costs_of_runs: Costs, n_stages: int, cost_of: Callable[[StageCost], float], joined: Callable[[float, float], float]
) -> tuple[float, list[int]]:
    """Return the least cost of all ways to cut the parts into stages, and the cuts; of equal ones the earliest.

    Args:
        costs_of_runs: Of every run of parts.
        n_stages: At most as many as there are parts.
        cost_of: Cost of one stage, not negative.
        joined: Cost of a run of stages from that of the earlier ones and that of the last; grows with both.
    """
    n_parts = len(costs_of_runs)
    costs = [[float(cost_of(cost)) for cost in row] for row in costs_of_runs]
    # best[k]: least cost of the first k parts in as many stages as the loop has done.
    best = [inf, *costs[0]]
    choices: list[list[int]] = []
    for n_done in range(1, n_stages):
        costs_to = [inf] * (n_parts + 1)
        choice = [n_done] * (n_parts + 1)
        for stop in range(n_done + 1, n_parts + 1):
            for cut in range(n_done, stop):
                cost = joined(best[cut], costs[cut][stop - cut - 1])
                if cost < costs_to[stop]:
                    costs_to[stop], choice[stop] = cost, cut
        best = costs_to
        choices.append(choice)
    cuts: list[int] = []
    stop = n_parts
    for choice in reversed(choices):
        stop = choice[stop]
        cuts.insert(0, stop)
    return best[n_parts], cuts
