"""Positions of the boxes in a net's picture: ranks from top to bottom, few crossings, straight lines.

The method of K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual understanding of hierarchical system structures"
(1981): ranks by longest path, points in every rank along an edge, order by the neighbours' mean, then places.

Why not Graphviz: no Python package contains the program. Matplotlib has no layout of graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 6
_GAP = 14.0


@dataclass(frozen=True)
class Layout:
    """Positions in pixels.

    Attributes:
        centers: Centre of each box, (x, rank); x begins at 0 for the leftmost edge of all boxes.
        routes: For each edge the points between its ends, from top to bottom.
        width: Width of the whole drawing.
        n_ranks: Number of ranks; a box's y is its rank.
    """

    centers: tuple[tuple[float, int], ...]
    routes: tuple[tuple[tuple[float, int], ...], ...]
    width: float
    n_ranks: int


def lay_out(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Layout:
    """Return the positions of boxes.

    Args:
        widths: Width of each box, pixels.
        edges: (upper box, lower box); the upper box has the smaller index. The edges differ.
    """
    ranks = _ranks(len(widths), edges)
    drawing = _Drawing(list(widths), ranks)
    chains = [drawing.add_chain(upper, lower) for upper, lower in edges]
    drawing.order()
    drawing.set_positions()
    x_min = min((x - width / 2 for x, width in zip(drawing.x, drawing.widths, strict=True)), default=0.0)
    x_max = max((x + width / 2 for x, width in zip(drawing.x, drawing.widths, strict=True)), default=0.0)
    points = [(x - x_min, rank) for x, rank in zip(drawing.x, drawing.ranks, strict=True)]
    return Layout(
        centers=tuple(points[: len(widths)]),
        routes=tuple(tuple(points[node] for node in chain[1:-1]) for chain in chains),
        width=x_max - x_min,
        n_ranks=max(ranks, default=-1) + 1,
    )


def _ranks(n_boxes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return longest paths from a source; a source with a late reader is drawn directly above the reader."""
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
    """Boxes and points of long edges: all are nodes. Used once."""

    def __init__(self, widths: list[float], ranks: list[int]) -> None:
        self.widths = widths
        self.ranks = ranks
        self.x = [0.0] * len(widths)
        self._n_boxes = len(widths)
        self._above: list[list[int]] = [[] for _ in widths]
        self._below: list[list[int]] = [[] for _ in widths]
        self._rows: list[list[int]] = []

    def add_chain(self, upper: int, lower: int) -> list[int]:
        """Add a point to every rank between two boxes and return all nodes of the edge."""
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
        positions = [0.0] * len(self.widths)
        for row in self._rows:
            _number(row, positions)
        for sweep in range(2 * _SWEEPS):
            neighbours, rows = (self._above, self._rows) if sweep % 2 == 0 else (self._below, self._rows[::-1])
            for row in rows:
                mean_positions = {
                    node: _mean([positions[other] for other in neighbours[node]], positions[node]) for node in row
                }
                row.sort(key=mean_positions.__getitem__)
                _number(row, positions)

    def set_positions(self) -> None:
        """Move every node towards the neighbours' mean as far as the order and the widths allow."""
        for row in self._rows:
            self._spread(row, [0.0] * len(row))
        for sweep in range(4 * _SWEEPS):
            neighbours, rows = (self._above, self._rows) if sweep % 2 == 0 else (self._below, self._rows[::-1])
            for row in rows:
                mean_positions = [_mean([self.x[other] for other in neighbours[node]], self.x[node]) for node in row]
                self._spread(row, mean_positions)

    def _spread(self, row: Sequence[int], targets: Sequence[float]) -> None:
        """Minimise squared distances under minimum gaps: pool adjacent violators after subtracting the gaps."""
        offsets, offset = [], 0.0
        for index, node in enumerate(row):
            if index:
                offset += (self.widths[row[index - 1]] + self.widths[node]) / 2 + _GAP
            offsets.append(offset)
        blocks: list[tuple[float, float, int]] = []  # mean, weight, nodes
        for node, wish, offset in zip(row, targets, offsets, strict=True):
            # Points of long edges weigh more than boxes, which straightens long edges.
            block = (wish - offset, 1.0 if node < self._n_boxes else 4.0, 1)
            while blocks and blocks[-1][0] > block[0]:
                mean, weight, count = blocks.pop()
                total = weight + block[1]
                block = ((mean * weight + block[0] * block[1]) / total, total, count + block[2])
            blocks.append(block)
        means = [mean for mean, _, count in blocks for _ in range(count)]
        for node, mean, offset in zip(row, means, offsets, strict=True):
            self.x[node] = mean + offset


def _number(row: Sequence[int], positions: list[float]) -> None:
    for index, node in enumerate(row):
        positions[node] = index - (len(row) - 1) / 2


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
