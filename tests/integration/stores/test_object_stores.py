"""Real stores: S3 spoken with moto's server, a process in an environment of its own; Hadoop's client with viewfs.

``make test-object-stores`` brings the server.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest

from deepspark_ops.events import read_events
from deepspark_ops.ingest.versions.kept_versions import kept_versions
from deepspark_ops.shards.manifest import read_manifest
from deepspark_ops.stores.store_path import data_path
from deepspark_ops.train.setup.dataset_users import current_users
from tests.paths import ROOT
from tests.reference.photo_net import write_photo_solver
from tests.reference.raw_sources import write_tar
from tests.reference.s3_server import SECRET, photos, put, s3_variables

pytestmark = pytest.mark.object_store


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the variables of a host that may use the store; this process has the variables, too."""
    with s3_variables(tmp_path_factory.mktemp("moto")), pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        yield {**os.environ, "PYTHONPATH": str(ROOT)}


def deepspark(*arguments: str, folder: Path, environment: dict[str, str], code: int = 0) -> str:
    """Run the command; return what it says on stderr. No credential is ever said."""
    command = [sys.executable, "-m", "deepspark_ops.command.cli", *arguments]
    completed = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    output = completed.stdout + completed.stderr
    assert completed.returncode == code, output
    assert "Traceback" not in output
    assert SECRET not in output
    return completed.stderr


@pytest.fixture(scope="module")
def dataset(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ingest from the store into the store."""
    folder = tmp_path_factory.mktemp("ingest")
    for name, content in photos().items():
        put(f"photos/{name}", content, folder)
    options = ["--output", "s3://bucket/sets/pets", "--samples-per-shard", "10", "--master", "local[2]"]
    deepspark("ingest", "s3://bucket/photos", *options, folder=folder, environment=environment)
    second_output = deepspark("ingest", "s3://bucket/photos", *options, folder=folder, environment=environment)
    assert "is up to date" in second_output
    return "s3://bucket/sets/pets"


def test_a_dataset_goes_from_the_store_into_the_store(dataset, environment, tmp_path):
    entries = data_path(dataset).entries(is_deep=True)
    manifest = read_manifest(data_path(f"{dataset}/train")).model_dump()
    shards = {f"train/{shard['file']}/data.mdb": shard["n_bytes"] for shard in manifest["shards"]}
    assert len(shards) > 3
    assert {name: entries[name].n_bytes for name in shards} == shards
    newest = max(entry.changed_ns for name, entry in entries.items() if name.startswith(("train/", "test/")))
    assert entries["dataset.json"].changed_ns >= newest  # moto tells seconds
    assert {f"train/{manifest['mean_file']['file']}", "contact_sheet.zip", "report.html"} <= set(entries)
    assert not [name for name in entries if name.startswith(".work")]
    # The same from the disk gives the same shards, to the bit.
    for name, content in photos().items():
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(content)
    options = ["--output", "here", "--samples-per-shard", "10", "--master", "local[2]"]
    deepspark("ingest", "photos", *options, folder=tmp_path, environment=environment)
    local_manifest = read_manifest(tmp_path / "here" / "train").model_dump()
    assert [shard["sha256"] for shard in local_manifest["shards"]] == [shard["sha256"] for shard in manifest["shards"]]


def test_archives_bad_keys_and_refusals_of_the_store(environment, tmp_path):
    images = photos()
    lines = "".join(f"{name} {int(name.startswith('cat'))}\n" for name in [*images, "cat/none.png"])
    for name, content in images.items():
        put(f"listed/{name}", content, tmp_path)
    put("listed/list.txt", lines.encode(), tmp_path)
    archive = write_tar(tmp_path / "a.tar.gz", {"list.txt": lines.encode(), **images})
    put("a.tar.gz", archive.read_bytes(), tmp_path)
    options = ["--max-rejected-fraction", "0.1", "--master", "local[2]"]
    for number, source in enumerate(("s3://bucket/a.tar.gz::list.txt", "s3://bucket/listed/list.txt")):
        deepspark("ingest", source, "--output", f"out{number}", *options, folder=tmp_path, environment=environment)
    shards = [read_manifest(tmp_path / f"out{i}/train").model_dump()["shards"] for i in range(2)]
    assert shards[0][0]["sha256"] == shards[1][0]["sha256"]
    rejected = "".join(path.read_text() for path in (tmp_path / "out1").rglob("rejected-*.jsonl"))
    assert "no such object: s3://bucket/listed/cat/none.png" in rejected
    output = deepspark("ingest", "s3://none/x", "--output", "o", folder=tmp_path, environment=environment, code=2)
    assert "source=s3://none/x: no such file or folder" in output
    unreachable = {**environment, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    output = deepspark("ingest", "s3://bucket/x", "--output", "o", folder=tmp_path, environment=unreachable, code=2)
    assert re.search("source=s3://bucket/x: the store cannot be reached: .*127.0.0.1", output)


def test_a_net_is_trained_scored_and_answers_from_the_store(dataset, environment, tmp_path):
    write_photo_solver(tmp_path, max_iter=40, has_mean_file=True)
    options = ["--dataset", dataset, "--run-dir", "run", "--workers", "2", "--master", "local[2]"]
    staging = ["--staging-folder", str(tmp_path / "copies"), "--staging-size", "1MiB"]
    deepspark("train", "solver.prototxt", *options, *staging, folder=tmp_path, environment=environment)
    copies = [path for path in (tmp_path / "copies").iterdir() if path.is_dir()]
    shards = read_manifest(data_path(f"{dataset}/train")).model_dump()["shards"]
    n_shards, most = len(shards), 7 * max(shard["n_bytes"] for shard in shards) // 2
    assert len(copies) == n_shards  # each once for both workers and the driver
    ended = next(event for event in read_events(tmp_path / "run" / "events.jsonl") if "fetched_shards" in event.data)
    assert ended.data["fetched_shards"] == n_shards
    little = ["--staging-folder", str(tmp_path / "few"), "--staging-size", str(most)]
    options[options.index("run")] = "again"
    train_output = deepspark("train", "solver.prototxt", *options, *little, folder=tmp_path, environment=environment)
    assert re.search(
        "the training set in s3://bucket/sets/pets has .*; shuffled order mixes the samples of", train_output
    )
    assert re.search("fetched from s3://bucket/sets/pets: .* copies of shards, each of [0-9]+ shards", train_output)
    assert sum(path.stat().st_size for path in (tmp_path / "few").rglob("*") if path.is_file()) <= most
    deepspark("evaluate", "run", folder=tmp_path, environment=environment)
    metrics = json.loads((tmp_path / "run" / "evaluation" / "metrics.json").read_text())
    assert metrics["scored"]["dataset"] == dataset
    deepspark("export", "run", "--formats", "caffe,saved_model", folder=tmp_path, environment=environment)
    for name, source in (("folder", "s3://bucket/photos"), ("set", dataset)):
        output = f"s3://bucket/answers/{name}.parquet"
        deepspark("predict", "run/bundle", source, "--output", output, folder=tmp_path, environment=environment)
        (tmp_path / name).write_bytes(data_path(output).read_bytes())
    answers = pq.read_table(tmp_path / "folder").to_pydict()
    right = [str(row)[:3] == label for row, label in zip(answers["id"], answers["predicted_name"], strict=True)]
    assert len(right) == 60
    assert np.mean(right) > 0.9
    assert pq.read_table(tmp_path / "set").num_rows == 18


def test_hadoops_client_reads_and_writes(tmp_path, monkeypatch):
    """With viewfs, which needs no server: a file system of Hadoop, named by settings alone."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "data" / "photos").mkdir(parents=True)
    (tmp_path / "conf" / "core-site.xml").write_text(
        "<configuration><property><name>fs.viewfs.mounttable.cluster.link./data</name>"
        f"<value>file://{tmp_path}/data</value></property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "conf"))
    (tmp_path / "data" / "photos" / "a.bin").write_bytes(b"content")
    old, new = tmp_path / "data" / "deep" / ".x.deepspark.tmp", tmp_path / "data" / "deep" / ".y.deepspark.tmp"
    old.parent.mkdir()
    for path in (old, new, old.with_name("of_the_user.tmp")):
        path.write_bytes(b"half")
    for path in (old, old.with_name("of_the_user.tmp")):
        os.utime(path, (1e9, 1e9))
    folder = data_path("viewfs://cluster/data/photos")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, alive = tmp_path / "deepspark-hadoop-dead", tmp_path / "deepspark-hadoop-alive"
    dead.write_bytes(b"half")
    with alive.open("wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with (folder / "a.bin").open("rb") as stream:
            assert stream.read() == b"content"
    assert [path.name for path in tmp_path.glob("deepspark-hadoop-*")] == ["deepspark-hadoop-alive"]
    assert folder.is_dir()
    assert list(folder.entries()) == list(folder.entries(is_deep=True)) == ["a.bin"]
    assert (folder / "a.bin").read_bytes() == b"content"
    (folder / "deep" / "b.bin").put(tmp_path / "data" / "photos" / "a.bin")
    assert (tmp_path / "data" / "photos" / "deep" / "b.bin").read_bytes() == b"content"
    assert list(folder.entries(is_deep=True)) == ["a.bin", "deep/b.bin"]
    (folder / "deep" / "b.bin").unlink()
    with pytest.raises(FileNotFoundError, match="no such object"):
        (folder / "deep" / "b.bin").read_bytes()
    data_path("viewfs://cluster/data/deep/c.bin").put(tmp_path / "data" / "photos" / "a.bin")
    assert sorted(path.name for path in old.parent.glob("[!.]*")) == ["c.bin", "of_the_user.tmp"]
    assert (old.exists(), new.exists()) == (False, True)  # a killed writer's; perhaps of a writer at work
    with pytest.raises(OSError, match="Spark's jars hold nothing for s3a: put there hadoop-aws"):
        data_path("s3a://bucket/x").read_bytes()


def test_a_source_that_grew_sends_what_is_new(dataset, environment, tmp_path):
    """The last of this file: the other tests count the first version's samples."""
    old_entries = data_path(dataset).entries(is_deep=True)
    rng = np.random.default_rng(1)
    for i in range(3):
        pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        put(f"photos/cat/new{i}.png", cv2.imencode(".png", pixels)[1].tobytes(), tmp_path)
    options = ["--output", dataset, "--samples-per-shard", "10", "--master", "local[2]"]
    output = deepspark("ingest", "s3://bucket/photos", *options, folder=tmp_path, environment=environment)
    assert "samples stay" in output
    new_entries = data_path(dataset).entries(is_deep=True)
    shards = {name: entry for name, entry in old_entries.items() if name.endswith(("data.mdb", ".npz"))}
    assert shards
    assert {name: new_entries[name] for name in shards} == shards  # times of change, too
    (version,) = (data_path(dataset) / "versions").iterdir()
    for path in (dataset, str(version)):
        deepspark("data", "verify", path, folder=tmp_path, environment=environment)
    for arguments in (["show", dataset], ["diff", dataset], ["sample", dataset, "--output", "s3://bucket/s.html"]):
        deepspark("data", *arguments, folder=tmp_path, environment=environment)
    prune = ["data", "prune", dataset, "--keep", "0", "--home", str(tmp_path), "--remove"]
    for user in [*current_users(data_path(dataset))]:  # runs of other tests keep their version
        shutil.rmtree(user.run_dir)
    deepspark(*prune, folder=tmp_path, environment=environment)
    assert kept_versions(data_path(dataset)) == []
    deepspark("data", "verify", dataset, folder=tmp_path, environment=environment)
