"""Uses of an address that ``make types`` must refuse. If mypy accepts a use, the comment of the use is unused: an
error.
"""

import os
import shutil
from pathlib import Path

from deepspark_ops.stores.store_path import DataPath, StorePath, data_path


def refused_uses(address: StorePath, path: DataPath, folder: Path) -> None:
    open(address)  # type: ignore[call-overload]
    open(path)  # type: ignore[arg-type]
    Path(address)  # type: ignore[arg-type]
    Path(path)  # type: ignore[arg-type]
    os.path.join(address)  # type: ignore[call-overload]
    os.fspath(path)  # type: ignore[arg-type]
    shutil.copyfile(path, folder)  # type: ignore[arg-type]
    folder.joinpath(address)  # type: ignore[arg-type]
    path.rename(folder)  # type: ignore[union-attr]


def refused_result() -> Path:
    return data_path("s3://bucket/key")  # type: ignore[return-value]


def accepted_uses(address: StorePath, path: DataPath, folder: Path) -> DataPath:
    with path.open("rb") as stream:
        stream.read()
    if isinstance(path, Path):
        open(path)
    return folder / address
