"""Requests to each cluster manager; a dry run of Spark's properties."""

from __future__ import annotations

import pytest

from deepspark_ops.devices.host_gpus import DISCOVERY_SCRIPT
from deepspark_ops.devices.requested import RequestedDevices
from deepspark_ops.devices.spark_resources import gpu_properties
from deepspark_ops.errors import ConfigError

REQUIRED = RequestedDevices("gpu", is_required=True)
AUTO = RequestedDevices("gpu")
EXECUTOR, TASK = "spark.executor.resource.gpu.amount", "spark.task.resource.gpu.amount"
SCRIPT, VENDOR = "spark.executor.resource.gpu.discoveryScript", "spark.executor.resource.gpu.vendor"
STANDALONE, YARN, KUBERNETES = "spark://a:7077", "yarn", "k8s://https://a:6443"
PATH = str(DISCOVERY_SCRIPT)


def test_standalone_starts_as_many_executors_as_workers_each_with_its_gpu() -> None:
    assert gpu_properties(STANDALONE, {}, REQUIRED, n_workers=3) == {
        EXECUTOR: "1",
        TASK: "1",
        SCRIPT: PATH,
        "spark.executor.cores": "1",
        "spark.cores.max": "3",
    }


def test_yarn_ships_the_script_into_each_container() -> None:
    assert gpu_properties(YARN, {}, REQUIRED, n_workers=3) == {
        EXECUTOR: "1",
        TASK: "1",
        SCRIPT: "./gpu_discovery.sh",
        "spark.yarn.dist.files": DISCOVERY_SCRIPT.as_uri(),
        "spark.executor.cores": "1",
        "spark.executor.instances": "3",
    }
    files = gpu_properties(YARN, {"spark.yarn.dist.files": "hdfs:///a.zip"}, REQUIRED, n_workers=3)
    assert files["spark.yarn.dist.files"] == f"hdfs:///a.zip,{DISCOVERY_SCRIPT.as_uri()}"
    # There the driver runs inside the cluster, when files have been shipped already.
    inside = gpu_properties(YARN, {"spark.submit.deployMode": "cluster"}, REQUIRED, n_workers=3)
    assert inside[SCRIPT] == PATH
    assert "spark.yarn.dist.files" not in inside


def test_kubernetes_is_told_the_vendor_and_finds_the_script_in_the_image() -> None:
    assert gpu_properties(KUBERNETES, {}, REQUIRED, n_workers=2) == {
        EXECUTOR: "1",
        TASK: "1",
        SCRIPT: PATH,
        VENDOR: "nvidia.com",
        "spark.executor.cores": "1",
        "spark.executor.instances": "2",
    }


def test_several_gpus_a_worker() -> None:
    properties = gpu_properties(STANDALONE, {}, RequestedDevices("gpu", is_required=True, per_worker=4), n_workers=2)
    assert (properties[EXECUTOR], properties[TASK], properties["spark.cores.max"]) == ("4", "4", "2")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # An executor with four GPUs serves four tasks of two cores each.
        (
            {EXECUTOR: "4", "spark.task.cpus": "2"},
            {TASK: "1", "spark.executor.cores": "8", "spark.executor.instances": "2"},
        ),
        # With three cores it serves three.
        ({EXECUTOR: "4", "spark.executor.cores": "3"}, {TASK: "1", "spark.executor.instances": "2"}),
        # Two tasks share a GPU.
        ({TASK: "0.5"}, {EXECUTOR: "1", "spark.executor.cores": "2", "spark.executor.instances": "3"}),
        ({"spark.executor.instances": "9"}, {EXECUTOR: "1", TASK: "1", "spark.executor.cores": "1"}),
        ({"spark.dynamicAllocation.enabled": "true"}, {EXECUTOR: "1", TASK: "1", "spark.executor.cores": "1"}),
    ],
)
def test_what_the_cluster_says_already_stands(settings: dict[str, str], expected: dict[str, str]) -> None:
    cluster_settings = {SCRIPT: "/opt/gpus.sh", VENDOR: "example.com", **settings}
    assert gpu_properties(KUBERNETES, cluster_settings, REQUIRED, n_workers=5) == expected


def test_auto_asks_only_where_the_cluster_grants_executors_gpus() -> None:
    assert gpu_properties(STANDALONE, {}, AUTO, n_workers=3) == {}
    assert gpu_properties(STANDALONE, {EXECUTOR: "4"}, AUTO, n_workers=3) == {TASK: "1"}
    assert gpu_properties(STANDALONE, {EXECUTOR: "4", TASK: "2"}, AUTO, n_workers=3) == {}
    two = RequestedDevices("gpu", per_worker=2)
    assert gpu_properties(YARN, {EXECUTOR: "4"}, two, n_workers=3) == {TASK: "2"}


@pytest.mark.parametrize(
    ("master", "requested"), [("local[4]", REQUIRED), ("local[*]", AUTO), (STANDALONE, RequestedDevices("cpu"))]
)
def test_nothing_is_asked_in_local_mode_or_for_the_cpu(master: str, requested: RequestedDevices) -> None:
    assert gpu_properties(master, {EXECUTOR: "4"}, requested, n_workers=3) == {}


@pytest.mark.parametrize(
    ("settings", "requested", "message"),
    [
        (
            {EXECUTOR: "2"},
            RequestedDevices("gpu", per_worker=4),
            "gpus_per_worker=4: Spark's settings grant an executor (spark.executor.resource.gpu.amount) 2 GPUs;"
            " allowed: 1 to 2, or devices=cpu, where the devices of a worker are logical ones of its CPU",
        ),
        (
            {EXECUTOR: "4", TASK: "0.5"},
            RequestedDevices("gpu", per_worker=2),
            "gpus_per_worker=2: a worker is one task, and Spark's settings give a task 0.5"
            " (spark.task.resource.gpu.amount); set that to 2, or take it out of spark-defaults.conf",
        ),
        (
            {},
            RequestedDevices("gpu", is_required=True, is_shared=True),
            "share_gpus=true: on a cluster Spark says how many tasks share a GPU, and its settings do not; put e.g."
            ' "spark.task.resource.gpu.amount 0.5" (two) into spark-defaults.conf, or leave share_gpus out',
        ),
        ({EXECUTOR: "many"}, AUTO, f"Spark's settings say {EXECUTOR}=many; allowed: a number above 0"),
        ({EXECUTOR: "0"}, AUTO, f"Spark's settings say {EXECUTOR}=0; allowed: a number above 0"),
    ],
)
def test_settings_that_cannot_serve_are_one_message(
    settings: dict[str, str], requested: RequestedDevices, message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        gpu_properties(STANDALONE, settings, requested, n_workers=2)
    assert str(error.value) == message
