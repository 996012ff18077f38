"""Positions of the boxes in a net's picture: ranks from top to bottom, few crossings, straight lines.

The method of K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual understanding of hierarchical system structures"
(1981): ranks by longest path, points in every rank that an edge passes, order by the neighbours' mean, then places.

Why not Graphviz: it is a program of the system, which no Python package brings; matplotlib has no layout of graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 6
_GAP = 14.0


@dataclass(frozen=True)
class Layout:
    """Places, pixels.

    Attributes:
        centers: Middle of each box, (x, y of its rank); x begins at 0 for the leftmost edge of all boxes.
        routes: For each edge the points between its ends, from top to bottom.
        width: Of the whole drawing.
        n_ranks: How many ranks there are; a box's y is its rank.
    """

    centers: tuple[tuple[float, int], ...]
    routes: tuple[tuple[tuple[float, int], ...], ...]
    width: float
    n_ranks: int


def lay_out(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Layout:
    """Place boxes.

    Args:
        widths: Of each box, pixels.
        edges: (upper box, lower box); the upper one's index is the smaller one. No two are equal.
    """
    ranks = _ranks(len(widths), edges)
    drawing = _Drawing(list(widths), ranks)
    chains = [drawing.add_chain(upper, lower) for upper, lower in edges]
    drawing.order()
    drawing.place()
    left = min((x - width / 2 for x, width in zip(drawing.x, drawing.widths, strict=True)), default=0.0)
    right = max((x + width / 2 for x, width in zip(drawing.x, drawing.widths, strict=True)), default=0.0)
    points = [(x - left, rank) for x, rank in zip(drawing.x, drawing.ranks, strict=True)]
    return Layout(
        centers=tuple(points[: len(widths)]),
        routes=tuple(tuple(points[node] for node in chain[1:-1]) for chain in chains),
        width=right - left,
        n_ranks=max(ranks, default=-1) + 1,
    )


def _ranks(n_boxes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Longest path from a source; a source that is read late is drawn right above its reader."""
    ranks = [0] * n_boxes
    for upper, lower in sorted(edges, key=lambda edge: edge[1]):
        ranks[lower] = max(ranks[lower], ranks[upper] + 1)
    fed = {lower for _, lower in edges}
    for box in set(range(n_boxes)) - fed:
        readers = [ranks[lower] for upper, lower in edges if upper == box]
        if readers:
            ranks[box] = min(readers) - 1
    return ranks


class _Drawing:
    """Boxes and the points of long edges: all are nodes. Used once."""

    def __init__(self, widths: list[float], ranks: list[int]) -> None:
        self.widths = widths
        self.ranks = ranks
        self.x = [0.0] * len(widths)
        self._n_boxes = len(widths)
        self._above: list[list[int]] = [[] for _ in widths]
        self._below: list[list[int]] = [[] for _ in widths]
        self._rows: list[list[int]] = []

    def add_chain(self, upper: int, lower: int) -> list[int]:
        """Put a point into every rank between two boxes and return all nodes from one to the other."""
        chain = [upper]
        for rank in range(self.ranks[upper] + 1, self.ranks[lower]):
            chain.append(len(self.widths))
            self.widths.append(2.0)
            self.ranks.append(rank)
            self.x.append(0.0)
            self._above.append([])
            self._below.append([])
        chain.append(lower)
        for high, low in pairwise(chain):
            self._below[high].append(low)
            self._above[low].append(high)
        return chain

    def order(self) -> None:
        """Order every rank by the mean position of the neighbours, sweeping down and up."""
        self._rows = [[] for _ in range(max(self.ranks, default=-1) + 1)]
        for node, rank in enumerate(self.ranks):
            self._rows[rank].append(node)
        places = [0.0] * len(self.widths)
        for row in self._rows:
            _number(row, places)
        for sweep in range(2 * _SWEEPS):
            neighbours, rows = (self._above, self._rows) if sweep % 2 == 0 else (self._below, self._rows[::-1])
            for row in rows:
                wanted = {node: _mean([places[other] for other in neighbours[node]], places[node]) for node in row}
                row.sort(key=wanted.__getitem__)
                _number(row, places)

    def place(self) -> None:
        """Move every node towards its neighbours' mean as far as the order and the widths allow."""
        for row in self._rows:
            self._spread(row, [0.0] * len(row))
        for sweep in range(4 * _SWEEPS):
            neighbours, rows = (self._above, self._rows) if sweep % 2 == 0 else (self._below, self._rows[::-1])
            for row in rows:
                wanted = [_mean([self.x[other] for other in neighbours[node]], self.x[node]) for node in row]
                self._spread(row, wanted)

    def _spread(self, row: Sequence[int], wanted: Sequence[float]) -> None:
        """Least squares under minimum distances: pool adjacent violators after taking the distances off."""
        offsets, offset = [], 0.0
        for index, node in enumerate(row):
            if index:
                offset += (self.widths[row[index - 1]] + self.widths[node]) / 2 + _GAP
            offsets.append(offset)
        blocks: list[tuple[float, float, int]] = []  # mean, weight, nodes
        for node, wish, taken in zip(row, wanted, offsets, strict=True):
            # Long edges should be straight: their points pull harder than boxes.
            block = (wish - taken, 1.0 if node < self._n_boxes else 4.0, 1)
            while blocks and blocks[-1][0] > block[0]:
                mean, weight, count = blocks.pop()
                total = weight + block[1]
                block = ((mean * weight + block[0] * block[1]) / total, total, count + block[2])
            blocks.append(block)
        means = [mean for mean, _, count in blocks for _ in range(count)]
        for node, mean, taken in zip(row, means, offsets, strict=True):
            self.x[node] = mean + taken


def _number(row: Sequence[int], places: list[float]) -> None:
    for place, node in enumerate(row):
        places[node] = place - (len(row) - 1) / 2


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
