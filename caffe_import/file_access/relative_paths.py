"""Where a relative path in a solver or a net, or a name in a list, is looked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from caffe_import.file_access.allowed_roots import check_named_path, is_refused


def roots_of(solver: Path) -> Iterator[Path]:
    """Yield the folders that a relative path may start from, nearest rule first.

    Caffe knows the working directory only. A scheduler's task cannot choose the working directory, so the solver's
    folder and the parent folders follow: Caffe's examples are written for the parent folder.
    """
    yield Path()
    yield from solver.absolute().parents


def find_relative(written: str, solver: Path, *, field_name: str) -> tuple[Path, Path] | None:
    """Return the file that ``written`` names and the folder of the match; None if no folder has the file.

    An absolute path is returned unchanged. A path below the working directory stays relative. A folder with an
    unreadable file is skipped in favour of a later folder.

    Args:
        written: The path as the solver or a net of it has it.
        solver: The solver's file.
        field_name: What holds the path, for the message.

    Raises:
        ForbiddenPathError: It leads out of the allowed folders.
    """
    existing_roots = [root for root in roots_of(solver) if (root / written).exists()]
    if not existing_roots:
        if Path(written).is_absolute() or ".." in Path(written).parts:
            check_named_path(written, named_by=f"{solver}: {field_name}")  # who may not read it learns nothing of it
        return None
    root = next((root for root in existing_roots if not is_refused(root / written)), existing_roots[0])
    check_named_path(root / written, named_by=f"{solver}: {field_name}")
    return root / written, root


def listed_path(root_folder: str, name: str) -> str:
    """Return the file of a list's line: root folder and name joined as texts, as in Caffe, else as paths.

    So a root folder may be the beginning of a name, and an absolute name may start from the root folder. The path
    serves a root folder without a slash at its end, and absolute names of files elsewhere. A file outside the allowed
    folders is not looked for.

    Source: BVLC Caffe 1.0, image_data_layer.cpp, window_data_layer.cpp and tools/convert_imageset.cpp.
    """
    text, path = f"{root_folder}{name}", os.path.join(root_folder, name)
    if text == path or _is_there(text):
        return text
    return path if _is_there(path) or os.path.isdir(root_folder) else text


def _is_there(path: str) -> bool:
    return not is_refused(path) and os.path.exists(path)
