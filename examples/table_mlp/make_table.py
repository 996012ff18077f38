"""Make the example's table: ``python examples/table_mlp/make_table.py OUTPUT.parquet [--rows 20000]``.

A row has 30 numbers of very different sizes; 2 % of the values are missing. ``risk``, a class of 2, and ``cost``, a
number, come from the numbers by a small random net and a product, with noise. A straight boundary gets 0.79 of ``risk``
right, a perceptron more. The same numbers on every call.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = 30


def make_table(n_rows: int) -> pa.Table:
    """Return the table."""
    rng = np.random.default_rng(5)
    inward, outward = rng.standard_normal((COLUMNS, 12)), rng.standard_normal(12)
    values = rng.standard_normal((n_rows, COLUMNS))
    score = np.tanh(values @ inward / 4.0) @ outward + 2.0 * values[:, 0] * values[:, 1]
    noise = rng.logistic(size=n_rows)
    sizes, offsets = 10.0 ** rng.integers(-3, 5, COLUMNS), rng.normal(0.0, 5.0, COLUMNS)
    features = (values + offsets) * sizes
    missing = np.asarray(rng.random(features.shape) < 0.02)
    columns = {f"f{i}": pa.array(features[:, i].astype(np.float32), mask=missing[:, i]) for i in range(COLUMNS)}
    columns["risk"] = pa.array((4.0 * score + noise > 0).astype(np.int64))
    columns["cost"] = pa.array((2.0 + score + 0.1 * noise).astype(np.float32))
    return pa.table({"id": np.arange(n_rows), **columns})


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--rows", type=int, default=20_000)
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(make_table(arguments.rows), arguments.output)


if __name__ == "__main__":
    main()
