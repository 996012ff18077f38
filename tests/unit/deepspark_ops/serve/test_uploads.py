"""Bodies that arrive slowly: each has a deadline, and the slowest body makes room."""

import asyncio
from contextlib import suppress

import pytest

from deepspark_ops.serve.refusal import RequestRefused
from deepspark_ops.serve.uploads import ClientGone, Uploads, replayed

WAIT_S = 60.0


class Client:
    """Sends what a test gives it."""

    def __init__(self, address="10.0.0.1"):
        self.address = address
        self._messages = asyncio.Queue()

    def send(self, body, *, more=True):
        self._messages.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self):
        self._messages.put_nowait({"type": "http.disconnect"})

    def begin(self, uploads):
        self.reading = asyncio.ensure_future(uploads.body(self._messages.get, self.address))
        return self

    async def answer(self):
        return await asyncio.wait_for(self.reading, WAIT_S)


async def enter_and_leave():
    """Let every reader take what was sent."""
    for _ in range(10):
        await asyncio.sleep(0)


def uploads(**options):
    return Uploads(**{"max_bytes": 100, "max_uploads": 4, "timeout_s": WAIT_S, **options})


def test_a_body_in_pieces_is_put_together():
    async def run():
        client = Client().begin(uploads())
        for piece in (b"a", b"", b"bc"):
            client.send(piece)
        client.send(b"d", more=False)
        return await client.answer()

    assert asyncio.run(run()) == b"abcd"


def test_a_body_has_a_deadline():
    async def run():
        client = Client().begin(uploads(timeout_s=0.05))
        client.send(b"x")
        with pytest.raises(RequestRefused, match=r"1 bytes of the body were here after 0\.05 s; send") as caught:
            await client.answer()
        return caught.value.status

    assert asyncio.run(run()) == 408


def test_a_body_is_bounded_and_a_client_may_leave():
    async def run():
        client, leaving = Client(), Client()
        held = uploads(max_uploads=10)
        client.begin(held)
        leaving.begin(held)
        client.send(b"x" * 60)
        client.send(b"x" * 60)
        leaving.leave()
        with pytest.raises(RequestRefused, match="120 bytes or more, expected at most 100"):
            await client.answer()
        with pytest.raises(ClientGone):
            await leaving.answer()

    asyncio.run(run())


def test_the_slowest_of_a_crowded_address_makes_room():
    async def run():
        held = uploads(max_uploads=4)  # two of one address
        fast, slow = Client().begin(held), Client().begin(held)
        other = Client("10.0.0.2").begin(held)
        fast.send(b"x" * 50)
        slow.send(b"x")
        other.send(b"")
        await enter_and_leave()
        new = Client().begin(held)
        with pytest.raises(RequestRefused, match="other requests of the same client needed the room") as caught:
            await slow.answer()
        for client in (fast, other, new):
            client.send(b"!", more=False)
        return caught.value.status, [await client.answer() for client in (fast, other, new)]

    assert asyncio.run(run()) == (408, [b"x" * 50 + b"!", b"!", b"!"])


def test_where_all_are_many_the_address_with_most_makes_room():
    async def run():
        held = uploads(max_uploads=4)
        clients = [Client(address).begin(held) for address in ("a", "b", "b", "c")]
        await enter_and_leave()
        new = Client("d").begin(held)
        await enter_and_leave()
        is_over = [client.reading.done() for client in clients]
        for client in (*clients, new):
            client.send(b"", more=False)
            with suppress(RequestRefused):
                await client.answer()
        return is_over, new.reading.exception()

    assert asyncio.run(run()) == ([False, True, False, False], None)


def test_a_body_that_was_read_is_handed_out_once():
    async def run():
        client = Client()
        client.leave()
        receive = replayed(b"body", client._messages.get)
        return [await receive(), await receive()]

    first, second = asyncio.run(run())
    assert first == {"type": "http.request", "body": b"body", "more_body": False}
    assert second["type"] == "http.disconnect"
