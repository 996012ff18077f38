from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest

from deepspark_ops.exchange.strategies.base import ExchangeContext, Strategy, configure, find_strategy
from deepspark_ops.exchange.transport.compression import PushCoder, WireDtype, make_pushes
from deepspark_ops.param_vector import Vector

ROUNDED: tuple[WireDtype, ...] = ("float16", "bfloat16")


def slow_bfloat16(value: float) -> int:
    """Nearest of all neighbours, ties to the even one, by exact fractions."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    around = [b for b in (bits, bits + 1) if (b & 0x7FFF) <= 0x7F80]
    exact = Fraction(value)
    top = Fraction(2) ** 128  # what infinity stands for when it is as near as the largest number

    def number(candidate: int) -> Fraction:
        if candidate & 0x7FFF == 0x7F80:
            return -top if candidate & 0x8000 else top
        return Fraction(struct.unpack("<f", struct.pack("<I", candidate << 16))[0])

    return min(around, key=lambda b: (abs(number(b) - exact), b & 1))


def slow_float16(value: float) -> int:
    """As Python's own ``struct`` rounds, which knows nothing of numpy."""
    value = max(-65504.0, min(65504.0, value))
    return int(struct.unpack("<H", struct.pack("<e", value))[0])


def samples() -> Vector:
    rng = np.random.default_rng(1)
    wide = rng.standard_normal(2_000) * 10.0 ** rng.integers(-9, 9, 2_000)
    special = [0.0, -0.0, 1.0, 65504.0, 65519.9, 65520.0, 7e4, -1e30, 6e-8, 2.9e-8, 1e-12, 1.00390625, 1.01171875]
    return np.concatenate((wide, special)).astype(np.float32)


@pytest.mark.parametrize(("dtype", "slow"), [("float16", slow_float16), ("bfloat16", slow_bfloat16)])
def test_rounding_agrees_with_slow_arithmetic_bit_for_bit(dtype: WireDtype, slow: object) -> None:
    values = samples()
    bits, back = np.empty(len(values), np.uint16), np.empty_like(values)
    coder = PushCoder(dtype, len(values))
    coder.encode(values, bits)
    assert bits.tolist() == [slow(float(value)) for value in values]  # type: ignore[operator]
    coder.decode(bits, back)
    reencoded = np.empty_like(bits)
    coder.encode(back, reencoded)
    np.testing.assert_array_equal(bits, reencoded)


@pytest.mark.parametrize("dtype", ROUNDED)
def test_what_is_not_a_number_stays_so(dtype: WireDtype) -> None:
    values, bits, back = np.float32([np.nan, 1.0]), np.empty(2, np.uint16), np.empty(2, np.float32)
    coder = PushCoder(dtype, 2)
    coder.encode(values, bits)
    coder.decode(bits, back)
    assert np.isnan(back[0])
    assert back[1] == 1.0


@pytest.mark.parametrize("dtype", ROUNDED)
def test_an_elastic_worker_keeps_what_the_center_does_not_get(dtype: WireDtype) -> None:
    rng = np.random.default_rng(2)
    local, push = rng.standard_normal((2, 50)).astype(np.float32)
    pushes = make_pushes(1, 64, 50, dtype, find_strategy("easgd"))
    room = pushes.room(0, 50)
    room[:] = push
    new_local = local - push
    sent = np.frombuffer(pushes.pack(0, slice(0, 50), room, new_local), np.uint16)
    slow = slow_float16 if dtype == "float16" else slow_bfloat16
    assert sent.tolist() == [slow(float(value)) for value in push]
    added = np.empty(50, np.float32)
    PushCoder(dtype, 50).decode(sent.copy(), added)
    assert np.abs(added - push).max() > 1e-5
    np.testing.assert_allclose(new_local, local.astype(np.float64) - added, rtol=0, atol=3e-7)  # one float32 rounding


@pytest.mark.parametrize("dtype", ROUNDED)
@pytest.mark.parametrize("strategy", ["downpour", "softsync", "local_sgd"])
def test_movements_leave_their_rest_to_the_next_push(dtype: WireDtype, strategy: str) -> None:
    rng = np.random.default_rng(3)
    pushes, coder = make_pushes(2, 64, 100, dtype, find_strategy(strategy)), PushCoder(dtype, 50)
    exact, sent = np.zeros(100), np.zeros(100)

    def push(slot: int, movement: Vector) -> Vector:
        room = pushes.room(slot, 50)
        room[:] = movement
        new_local = movement.copy()  # around a center of zeros
        bits = np.frombuffer(pushes.pack(slot, slice(50 * slot, 50 * slot + 50), room, new_local), np.uint16)
        added = np.empty(50, np.float32)
        coder.decode(bits, added)
        if strategy == "downpour":
            np.testing.assert_allclose(new_local, added, rtol=0, atol=1e-9)
        return added

    for _ in range(30):
        first, second = np.float32(1e-3) * rng.standard_normal((2, 50)).astype(np.float32)
        sent[:50] += push(0, first)
        push(1, second)  # does not arrive: the connection breaks
        sent[50:] += push(1, second)
        exact += np.concatenate((first, second))
        pushes.exchanged()
    rounding = 4e-3 * 2.0**-9  # of one push, of size up to 4e-3, and not of thirty
    assert 0.0 < np.abs(exact - sent).max() < 1.01 * rounding


@pytest.mark.parametrize("dtype", ROUNDED)
@pytest.mark.parametrize("n_workers", [8, 32])
@pytest.mark.parametrize(
    ("strategy", "center_weight"),
    [(find_strategy("easgd"), None), (configure("deepspark", {"server_factor": 0.25}), 4.0)],
    ids=["easgd", "deepspark"],
)
def test_the_weighted_sum_is_kept_whatever_the_center_weighs(
    dtype: WireDtype, n_workers: int, strategy: Strategy, center_weight: float | None
) -> None:
    """Workers in turn, 20 exchanges each: the center counts so many times as it moves less than a worker."""
    running, n_params = strategy.for_workers(n_workers), 64
    weight = center_weight or {8: 2.0, 32: 4.0}[n_workers]
    rng, coder = np.random.default_rng(4), PushCoder(dtype, n_params)
    center, *locals_ = rng.standard_normal((n_workers + 1, n_params)).astype(np.float32)
    pushes = [make_pushes(1, n_params, n_params, dtype, running) for _ in locals_]
    context, span = ExchangeContext(n_workers, 0.3), slice(0, n_params)
    held = weight * center.astype(np.float64) + np.sum(locals_, axis=0, dtype=np.float64)
    for turn in range(20 * n_workers):
        worker = turn % n_workers
        local, new_local = locals_[worker], np.empty(n_params, np.float32)
        room = pushes[worker].room(0, n_params)
        running.worker_chunk(local, center, new_local, room, local, context)
        packed = pushes[worker].pack(0, span, room, new_local, running.center_share(context))
        pushed = np.empty(n_params, np.float32)
        coder.decode(np.frombuffer(packed, np.uint16), pushed)
        running.server_chunk(center, (), pushed, context, 0)
        pushes[worker].exchanged()
        locals_[worker] = new_local
    new_sum = weight * center.astype(np.float64) + np.sum(locals_, axis=0, dtype=np.float64)
    np.testing.assert_allclose(
        new_sum, held, rtol=0, atol=2e-5
    )  # float32 rounding of 640 exchanges of numbers of size 1
