"""Damages bytes. The same generator gives the same damage, so that three numbers name an input."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

_MAX_BYTES = 1 << 16
_INTEGERS = [0, 1, 2, 127, 128, 255, 256, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
_WORDS = (b"-1", b"0", b"1e999", b"nan", b"NaN", b"Infinity", b"null", b"true", b"[]", b"{}", b'""', b"\\", b'"', b"\n")
_WORDS += (b"99999999999999999999", b"-0", b"0x1", b"1e-400", b"\xff\xfe", b"\xc3\x28", b"\x00", b"../", b"/", b"\r\n")
Damage = Callable[[bytearray, random.Random, Sequence[bytes]], None]


def mutated(corpus: Sequence[bytes], rng: random.Random, words: Sequence[bytes] = ()) -> bytes:
    """Return one member of the corpus with a few damages.

    Args:
        corpus: Valid files, at least one.
        rng: Decides everything.
        words: What means something in the format.
    """
    content = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5, 8, 20))):
        damage = rng.choice(_DAMAGES)
        damage(content, rng, corpus if damage is _splice else (words or _WORDS))
    del content[_MAX_BYTES:]
    return bytes(content)


def _position(content: bytearray, rng: random.Random) -> int:
    """Most of what can go wrong stands in front."""
    end = len(content) if rng.random() < 0.5 else min(len(content), 512)
    return rng.randrange(end) if end else 0


def _bit(content: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    if content:
        content[_position(content, rng)] ^= 1 << rng.randrange(8)


def _byte(content: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    if content:
        content[_position(content, rng)] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))


def _number(content: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    """Overwrite bytes with a number at the edge of a range."""
    size = rng.choice((1, 2, 4, 8))
    value = rng.choice(_INTEGERS) % 256**size
    at = _position(content, rng)
    content[at : at + size] = value.to_bytes(size, rng.choice(("little", "big")))


def _cut(content: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    at = _position(content, rng)
    del content[at : at + rng.choice((1, 2, 4, 16, 64, 1024))]


def _end(content: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    del content[_position(content, rng) :]


def _repeat(content: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    at = _position(content, rng)
    part = bytes(content[at : at + rng.choice((1, 4, 16, 64, 256))])
    content[at:at] = part * rng.choice((1, 1, 2, 10))


def _put(content: bytearray, rng: random.Random, words: Sequence[bytes]) -> None:
    at = _position(content, rng)
    content[at:at] = rng.choice(words) if rng.random() < 0.7 else rng.choice(_WORDS)


def _replace(content: bytearray, rng: random.Random, words: Sequence[bytes]) -> None:
    at = _position(content, rng)
    word = rng.choice(words)
    content[at : at + len(word)] = word


def _noise(content: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    at = _position(content, rng)
    part = rng.randbytes(rng.choice((1, 4, 16)))
    content[at : at + len(part)] = part


def _splice(content: bytearray, rng: random.Random, corpus: Sequence[bytes]) -> None:
    """Go on with the rest of another member."""
    other = rng.choice(corpus)
    at = _position(content, rng)
    content[at:] = other[rng.randrange(len(other) + 1) :]


def _line(content: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    """Drop, double or move a line."""
    lines = bytes(content).split(b"\n")
    at = rng.randrange(len(lines))
    line = lines.pop(at)
    lines[rng.randrange(len(lines) + 1) : 0] = [line] * rng.choice((0, 1, 2))
    content[:] = b"\n".join(lines)


_DAMAGES: tuple[Damage, ...] = (
    *(_bit, _byte, _byte, _number, _number, _cut, _end, _repeat, _put, _replace, _replace, _noise, _splice, _line),
)
