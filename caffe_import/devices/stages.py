"""Cuts a net into consecutive stages, one per device, balanced by memory and time.

The cuts are optimal among all cuts of the net's order of execution (dynamic programmes over the positions of the cuts).
No device needs more than ``MEMORY_SLACK`` times the memory of the best balance. Among these cuts the slowest stage is
as fast as possible; among equals the fewest bytes cross borders.

An in-place layer stays with the maker of the blob, and a Split with the maker of the bottom, as does a Scale of one
kernel with a BatchNorm. Layers without bottoms (data) are on the device of their first reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Final

from caffe_import.devices.compute_plan import Placement
from caffe_import.devices.device_load import DeviceLoad, LoadCount
from caffe_import.devices.fused_layers import fused_scales
from caffe_import.devices.step_memory import NetCosts, StepShape
from caffe_import.devices.unnamed_layers import place_all
from caffe_import.errors import PlacementError
from caffe_import.net.net_spec import NetSpec

MEMORY_SLACK: Final = 1.25
Loads = Sequence[Sequence[DeviceLoad]]
"""``loads[first][last - first]``: the parts first to last on one device."""


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
    loads = _loads_of_runs(net, parts, replace(step, makes_columns=False))
    borders = [0, *best_cuts(loads, n_devices), len(parts)]
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
    joined: set[int] = set()
    scales = {scale.name for scale in fused_scales(net).values()}
    for position, layer in enumerate(net.layers):
        stays = layer.type == "Split" or layer.name in scales
        above = {makers[blob] for blob in layer.bottoms if blob in layer.tops or stays}
        if not layer.bottoms or (layer.type == "Split" and above <= sources):
            sources.add(position)
        for maker in above - sources:
            joined.update(range(maker + 1, position + 1))
        makers.update((blob, position) for blob in layer.tops)
    parts: list[tuple[int, ...]] = []
    for position in range(len(net.layers)):
        if position in sources:
            continue
        if position in joined:
            parts[-1] += (position,)
        else:
            parts.append((position,))
    return tuple(parts)


def _loads_of_runs(net: NetSpec, parts: Sequence[Sequence[int]], step: StepShape) -> Loads:
    costs = NetCosts(net, step)
    loads = []
    for first in range(len(parts)):
        count = LoadCount(costs)
        row = []
        for part in parts[first:]:
            for position in part:
                count.add(position)
            row.append(count.load())
        loads.append(row)
    return loads


def best_cuts(loads: Loads, n_stages: int) -> list[int]:
    """Return the first part of every stage but the first, by the order of aims that the module names."""

    def memory(load: DeviceLoad) -> float:
        return load.memory_bytes

    least, _ = _cheapest(loads, n_stages, memory, max)
    allowed = MEMORY_SLACK * least

    def time_within_memory(load: DeviceLoad) -> float:
        return load.time if load.memory_bytes <= allowed else inf

    shortest, _ = _cheapest(loads, n_stages, time_within_memory, max)

    def border_within_both(load: DeviceLoad) -> float:
        return load.border_bytes if time_within_memory(load) <= shortest else inf

    _, cuts = _cheapest(loads, n_stages, border_within_both, float.__add__)
    return cuts


def _cheapest(
    loads: Loads, n_stages: int, cost_of: Callable[[DeviceLoad], float], joined: Callable[[float, float], float]
) -> tuple[float, list[int]]:
    """Return the least cost of all ways to cut the parts into stages, and the cuts; of equal ones the earliest.

    Args:
        loads: Of every run of parts.
        n_stages: At most as many as there are parts.
        cost_of: Cost of one stage, not negative.
        joined: Cost of a run of stages from that of the earlier ones and that of the last; grows with both.
    """
    n_parts = len(loads)
    costs = [[float(cost_of(load)) for load in row] for row in loads]
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
