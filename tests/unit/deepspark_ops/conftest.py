"""A store in a folder of this disk, behind pyarrow's interface as real stores."""

from pathlib import Path

import pytest
from pyarrow import fs

from deepspark_ops.stores import arrow_store, staging, store_path


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Return the folder whose folders are the buckets of s3; copies are staged below ``tmp_path``, too."""
    root = tmp_path / "store"
    root.mkdir()
    local = fs.SubTreeFileSystem(str(root), fs.LocalFileSystem())
    monkeypatch.setattr(arrow_store, "filesystem_of", lambda scheme, bucket: local)
    put = arrow_store.ArrowStore.put

    def put_into_folder(self, source, key):  # a real store has no folders to be made
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        put(self, source, key)

    monkeypatch.setattr(arrow_store.ArrowStore, "put", put_into_folder)
    monkeypatch.setattr(staging, "_in_use", staging.Staging(tmp_path / "staging"))
    store_path._listed.cache_clear()
    return root


@pytest.fixture
def written(store):
    def write(name: str, content: bytes) -> Path:
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return write
