"""Answers of a bundle, as a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from deepspark_ops.api.results.card import Card, CardTable, HasCard
from deepspark_ops.api.results.frames import load_pandas
from deepspark_ops.api.results.result_folder import local_text
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath

if TYPE_CHECKING:
    import pandas as pd

_ROWS_SHOWN: Final = 10
_LETTERS_SHOWN: Final = 60


@dataclass(frozen=True)
class Predictions(HasCard):
    """What ``ds.predict`` wrote.

    Attributes:
        path: The Parquet file, or the folder of such files that Spark wrote.
    """

    path: DataPath

    def __fspath__(self) -> str:
        """Return the path; TypeError for a file in a store."""
        return local_text(self.path)

    def frame(self) -> pd.DataFrame:
        """Return all rows as a DataFrame."""
        with local_copy(self.path) as path:
            frame: pd.DataFrame = load_pandas("predictions.frame()").read_parquet(path)
        return frame

    def _card(self) -> Card:
        frame = self.frame()
        rows = [[_short(value) for value in row] for row in frame.head(_ROWS_SHOWN).itertuples(index=False)]
        note = f"{len(frame):,} rows" + (f", the first {_ROWS_SHOWN} shown" if len(frame) > _ROWS_SHOWN else "")
        return Card("Predictions", str(self.path), note=note, table=CardTable(list(map(str, frame.columns)), rows))


def _short(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LETTERS_SHOWN else f"{text[:_LETTERS_SHOWN]}..."
