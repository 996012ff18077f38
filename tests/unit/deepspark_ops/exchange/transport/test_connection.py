"""The address of the exchange on its way to a worker's process."""

from __future__ import annotations

import json

from deepspark_ops.exchange.transport.connection import ExchangeAddress


def test_an_address_survives_json_whole() -> None:
    address = ExchangeAddress("h", 1, 2**63, bytes(range(32)), "socket", 2.5, (3, 4), "tls", b"\xff" * 32)
    assert ExchangeAddress.from_plain(json.loads(json.dumps(address.to_plain()))) == address
