from __future__ import annotations

import io
import os
from pathlib import Path

import h5py
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.tasks.run_plan import Places, ingest_digest, is_ingested, safe_run_id
from deepspark_ops.shards.manifest import manifest_path
from deepspark_ops.stores import store_path
from deepspark_ops.stores.store import Entry
from deepspark_ops.stores.store_path import StorePath, data_path
from tests.reference.dataset_files import put_manifest_text

pytestmark = pytest.mark.airflow  # the package of operators is only there with Airflow


def test_run_ids_become_folder_names_that_differ() -> None:
    ids = [
        "manual__2026-01-31T04:05:06.789+00:00",
        "scheduled__2026-01-31T04:05:06+00:00",
        "asset_triggered__2026-01-31T04:05:06.789+00:00_AbC123",
        "manual__2026-01-31T04-05-06_00-00",
        "manual__2026-01-31T04:05:06+00:00",
        "manual__2026-01-31T04:05:06Z",
        "manual__2026-01-31T04-05-06Z",
        "my run/1",
        "my-run-1-7e011789",
        "x/../../etc",
        "x-..-..-etc",
        "a:b",
        "a+b",
        "..",
    ]
    names = [safe_run_id(run_id) for run_id in ids]
    assert len(set(names)) == len(names)
    for name in names:
        assert not set(name) & set("/:+ ")
        assert not name.startswith(".")


def ingest_config(source: Path, **changes: object) -> IngestConfig:
    return IngestConfig(source=source, output=Path("out"), **changes)  # type: ignore[arg-type]


def touched(path: Path) -> None:
    path.write_bytes(path.read_bytes())
    os.utime(path, (1, 1))


def test_digest_follows_the_files_that_a_list_names(tmp_path: Path) -> None:
    images = tmp_path / "elsewhere"
    images.mkdir()
    for name in ("a.png", "b.png"):
        (images / name).write_bytes(name.encode())
    listed = tmp_path / "list.txt"
    listed.write_text("a.png 0\nb.png 1\n")
    options = {"root_folder": images, "test_source": listed}
    first = ingest_digest(ingest_config(listed, **options))
    assert ingest_digest(ingest_config(listed, **options)) == first
    touched(images / "b.png")
    assert ingest_digest(ingest_config(listed, **options)) != first
    (tmp_path / "h").mkdir()
    with h5py.File(tmp_path / "h" / "data.h5", "w") as file:
        file["data"] = [[1.0]]
    lines = tmp_path / "h" / "files.txt"
    lines.write_text("data.h5\n")
    first = ingest_digest(ingest_config(lines))
    touched(tmp_path / "h" / "data.h5")
    assert ingest_digest(ingest_config(lines)) != first


def test_digest_follows_the_objects_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = {"b/photos/cat/1.png": 5, "b/photos/dog/1.png": 6, "b/train.csv": 7}

    class Bucket:
        def entry(self, address: str) -> Entry | None:
            if address in bucket:
                return Entry(address, 3, bucket[address], False)
            return Entry(address, 0, 0, True) if any(key.startswith(address + "/") for key in bucket) else None

        def entries(self, address: str, *, is_deep: bool) -> list[Entry]:
            return [Entry(key, 3, time, False) for key, time in bucket.items() if key.startswith(address + "/")]

        def opened(self, key: str) -> io.BytesIO:
            return io.BytesIO(b"a,b\n")

    monkeypatch.setattr(StorePath, "store", lambda _: Bucket())
    for source, key in (("s3://b/photos", "b/photos/dog/1.png"), ("s3://b/train.csv", "b/train.csv")):
        store_path._listed.cache_clear()
        old_digest = ingest_digest(ingest_config(data_path(source)))
        assert ingest_digest(ingest_config(data_path(source))) == old_digest
        bucket[key] += 1
        store_path._listed.cache_clear()  # a task of another run is another process
        assert ingest_digest(ingest_config(data_path(source))) != old_digest


def test_a_source_in_a_store_has_one_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StorePath, "entry", lambda _: None)
    locations = Places(tmp_path, tmp_path / "home")
    assert locations.place_of("s3://b/photos.zip::x") == "s3://b/photos.zip::x"
    folder = locations.dataset_folder(ingest_config(data_path("s3://b/photos.zip::x")))
    assert folder.parent == tmp_path / "home" / "datasets"
    assert folder.name.startswith("photos-")


def test_digest_follows_config_and_source_but_not_where_it_is_written(tmp_path: Path) -> None:
    source = tmp_path / "list.txt"
    source.write_text("a.png 0\n")
    first = ingest_digest(ingest_config(source))
    elsewhere = ingest_config(source, master="yarn", listen_address="192.0.2.2", insecure_network=True)
    assert ingest_digest(elsewhere) == first
    assert ingest_digest(ingest_config(source, gray=True)) != first
    os.utime(source, (1, 1))
    assert ingest_digest(ingest_config(source)) != first
    member = ingest_config(Path(f"{source}::inner/train.txt"))
    old_digest = ingest_digest(member)
    source.write_text("b.png 0\nc.png 1\n")
    assert ingest_digest(member) != old_digest


def test_digest_of_a_folder_follows_its_files(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "data.mdb").write_text("1")
    first = ingest_digest(ingest_config(tmp_path / "db"))
    (tmp_path / "db" / "more.mdb").write_text("1")
    assert ingest_digest(ingest_config(tmp_path / "db")) != first


def test_places(tmp_path: Path) -> None:
    dags = tmp_path / "dags"
    assert Places.of_dags_folder(dags, {}) == Places(tmp_path, tmp_path)
    elsewhere = {"DEEPSPARK_ROOT": str(tmp_path / "root"), "DEEPSPARK_HOME": str(tmp_path / "home")}
    assert Places.of_dags_folder(dags, elsewhere) == Places(tmp_path / "root", tmp_path / "home")
    locations = Places.of_dags_folder(dags, {"DEEPSPARK_HOME": str(tmp_path / "home")})
    assert locations.root == tmp_path
    assert locations.run_folder("d", "r") == tmp_path / "home" / "runs" / "d" / "r"
    folder = locations.dataset_folder(ingest_config(Path("x/digits8x8-images-idx3-ubyte.gz::a b")))
    assert folder.parent == tmp_path / "home" / "datasets"
    assert folder.name.startswith("digits8x8-images-idx3-ubyte-")


def test_a_source_has_one_dataset_however_it_is_named(tmp_path: Path) -> None:
    locations = Places(tmp_path, tmp_path)
    for name in ("list.txt", "other.txt"):
        (tmp_path / name).write_text("a.png 0\n")
    (tmp_path / "link").symlink_to(tmp_path)
    ways = ("list.txt", "x/../list.txt", str(tmp_path / "list.txt"), str(tmp_path / "link" / "list.txt"))
    folders = {
        locations.dataset_folder(ingest_config(Path(path_text), test_source=Path(path_text))) for path_text in ways
    }
    assert len(folders) == 1
    assert locations.dataset_folder(ingest_config(Path("other.txt"))) not in folders
    assert locations.dataset_folder(ingest_config(Path("list.txt"), test_source=Path("other.txt"))) not in folders


def test_a_dataset_counts_only_with_all_manifests_that_it_names(tmp_path: Path) -> None:
    assert not is_ingested(tmp_path)
    for split in ("train", "test"):
        put_manifest_text(tmp_path, split, split)
    assert is_ingested(tmp_path)
    manifest_path(tmp_path, "test").unlink()
    assert not is_ingested(tmp_path)


def test_a_table_of_the_catalog_is_no_path_and_a_query_is_a_dataset_of_its_own(tmp_path: Path) -> None:
    locations = Places(tmp_path, tmp_path)
    assert locations.place_of("table:shop.customers") == "table:shop.customers"
    table = locations.dataset_folder(ingest_config(Path("table:shop.customers")))
    assert table.name.startswith("table-shop-")
    queries = {locations.dataset_folder(ingest_config(Path("table:"), query=f"SELECT {i}")) for i in range(2)}
    assert len(queries | {table}) == 3


def test_the_environment_says_what_a_net_may_name(tmp_path: Path) -> None:
    environment = {
        "DEEPSPARK_ALLOWED_ROOTS": f"/mnt/data:{tmp_path}/x:",
        "DEEPSPARK_PYTHON_LAYERS": "ours.layers, theirs",
    }
    locations = Places.of_dags_folder(tmp_path / "dags", environment)
    assert locations.allowed_roots == (Path("/mnt/data"), tmp_path / "x")
    assert locations.named_files().python_layers == ("ours.layers", "theirs")
    assert locations.named_files().confined
    none = Places.of_dags_folder(tmp_path / "dags", {})
    assert (none.allowed_roots, none.python_layers) == ((), ())
    with pytest.raises(ConfigError, match="'os;x' is no name of a module"):
        Places.of_dags_folder(tmp_path / "dags", {"DEEPSPARK_PYTHON_LAYERS": "os;x"}).named_files()
