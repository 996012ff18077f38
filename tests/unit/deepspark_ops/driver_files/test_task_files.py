"""Tasks read a file of their host where the host has the driver's file, and else the driver's."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.driver_files.task_files import TaskFiles, files_for_tasks
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.part_scores import PartConfig, config_on_host
from deepspark_ops.stores.staging import Staging
from deepspark_ops.stores.store_path import data_path, on_driver, use_driver_store
from deepspark_ops.stores.writing import write_text

CLUSTER = "local-cluster[1,1,1024]"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    bundle = tmp_path / "driver" / "bundle"
    (bundle / "deep").mkdir(parents=True)
    (bundle / "deep" / "weights").write_bytes(b"weights")
    (bundle.parent / "a.zip").write_bytes(b"zip")
    return bundle


def test_a_host_with_the_drivers_file_reads_its_own_disk(tmp_path: Path, bundle: Path) -> None:
    archive = Path(f"{bundle.parent / 'a.zip'}::list.txt")
    read = (bundle, archive, tmp_path / "missing", data_path("s3://bucket/data"), None)
    with files_for_tasks(CLUSTER, listen_address="auto", staging=Staging(tmp_path / "copies"), read=read) as files:
        assert hash(files) == hash(replace(files)), "a process keeps what it has loaded for the files"
        files.use()
        assert [files.on_host(path) for path in read if path is not None] == list(read[:-1])
        assert files.copy(bundle) == bundle
        # Another file, or a file of another time, is not the driver's.
        os.utime(bundle, ns=(0, 0))
        (bundle.parent / "a.zip").write_bytes(b"longer")
        assert files.on_host(bundle) == on_driver(bundle)
        assert files.on_host(archive) == on_driver(archive)
        copy = files.copy(bundle)
        assert copy.is_relative_to(tmp_path / "copies")
        assert (copy / "deep" / "weights").read_bytes() == b"weights"
        other = replace(files, stamps=((str(tmp_path / "none"), (1, 1)),))
        with pytest.raises(DataError, match=r"driver://.*/none: the driver reads for workers only in .*/bundle"):
            other.copy(tmp_path / "none")
    use_driver_store(None)


def test_a_host_without_the_output_sends_its_files(tmp_path: Path, bundle: Path) -> None:
    output = tmp_path / ".answers.x7"
    output.mkdir()
    staging = Staging(tmp_path / "copies")
    with files_for_tasks(CLUSTER, listen_address="auto", staging=staging, read=(), output=output) as files:
        files.use()
        assert files.output_on_host() == output
        write_text(on_driver(output) / "part-0", "rows")
        assert (output / "part-0").read_text() == "rows"
        with pytest.raises(PermissionError, match="the driver writes for workers only in"):
            write_text(on_driver(bundle) / "part-0", "rows")
        (output / "part-0").unlink()
        output.rmdir()
        assert files.output_on_host() == on_driver(output)
    use_driver_store(None)


def test_tasks_in_the_drivers_process_need_no_server(tmp_path: Path, bundle: Path) -> None:
    with files_for_tasks(
        "local[2]", listen_address="auto", staging=Staging(), read=(bundle,), output=tmp_path
    ) as files:
        assert (files.address, files.on_host(bundle), files.output_on_host()) == (None, bundle, tmp_path)
    assert TaskFiles(Staging()).output_on_host() is None


def test_the_server_takes_the_port_that_is_asked_for(bundle: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=rf"cannot use port {port}: Address already in use; give another"),
            files_for_tasks(CLUSTER, listen_address="auto", listen_port=port, staging=Staging(), read=(bundle,)),
        ):
            pass
    with files_for_tasks(CLUSTER, listen_address="auto", listen_port=port, staging=Staging(), read=(bundle,)) as files:
        assert files.address is not None
        assert files.address.port == port


def test_the_runs_small_files_come_with_the_task(tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, weights = tmp_path / "hidden" / "run", bundle / "deep" / "weights"
    config = EvaluateConfig(run_dir=run, weights=weights, dataset=tmp_path / "data")
    contents = (("config.json", f'{{"placement": "{run}/p.txt"}}'.encode()), ("sources/0_list.txt", b"a"))
    monkeypatch.chdir(tmp_path)
    part = PartConfig(config.model_dump_json(), 1, TaskFiles(Staging()), contents, "copy")
    host_config = config_on_host(part)
    copy = tmp_path / "copy"
    assert (host_config.run_dir, host_config.weights, host_config.dataset) == (copy, weights, tmp_path / "data")
    assert (copy / "config.json").read_text() == f'{{"placement": "{copy}/p.txt"}}'
    assert (copy / "sources" / "0_list.txt").read_bytes() == b"a"
