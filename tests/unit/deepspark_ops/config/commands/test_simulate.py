"""Options of stage simulate."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import SimulateConfig
from deepspark_ops.errors import ConfigError


def simulate_config(**options: object) -> SimulateConfig:
    return parse_config(SimulateConfig, {"solver": Path("a.prototxt"), **options})


def test_network_is_bandwidth_and_latency() -> None:
    config = simulate_config(network="2.5gbit,200us")
    assert (config.bandwidth_bytes, config.latency_s) == pytest.approx((312.5e6, 200e-6))
    config = simulate_config(network="800mbit,1ms")
    assert (config.bandwidth_bytes, config.latency_s) == pytest.approx((100e6, 1e-3))


@pytest.mark.parametrize("network", ["10gbit", "10gb,1ms", "0gbit,1ms", "fast,1ms", "10gbit,1s"])
def test_another_network_is_refused(network: str) -> None:
    with pytest.raises(ConfigError, match="bandwidth and latency; allowed: 10gbit,200us"):
        simulate_config(network=network)


def test_lists_are_read() -> None:
    config = simulate_config(workers="16,1,4,4", strategy="easgd,sync,easgd", seeds="3,1,3")
    assert (config.worker_counts, config.strategy_names, config.seed_list) == ((1, 4, 16), ("easgd", "sync"), (3, 1))
    assert simulate_config().seed_list == (None,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": "0,4"}, "each must be 1 to 1000"),
        ({"workers": "4;8"}, "whole numbers with commas"),
        ({"strategy": "easgd,sync", "strategy_options": "a: 1"}, "give one strategy with them"),
        ({"stragglers": 1.0}, "less than 1"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate_config(**options)
