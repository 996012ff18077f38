"""The address that the driver listens on and Spark's properties, by master and by Spark's own settings."""

from __future__ import annotations

import socket
from typing import Literal

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.processes.cluster_network import (
    AUTHENTICATED_CIPHER,
    ENCRYPTION,
    address_towards,
    choose_listen_address,
    choose_protection,
    cluster_network,
    stays_on_host,
)

LOCAL_ADDRESS = "192.0.2.2"
REMOTE = (
    "spark://192.0.2.9:7077",
    "yarn",
    "k8s://https://192.0.2.9:6443",
    "k8s://192.0.2.9",
    "spark://[2001:db8::9]:1",
)
ON_HOST = ("local", "local[*]", "local[2,5]", "local-cluster[2,1,1024]", "spark://127.0.0.1:7077", "spark://[::1]:7077")
WITH_SECRET = {"spark.authenticate": "true", "spark.authenticate.secret": "hidden"}
_LOOPBACK = ((socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1"))
DRIVER = {"spark.driver.host": LOCAL_ADDRESS, "spark.driver.bindAddress": LOCAL_ADDRESS}


@pytest.fixture(autouse=True)
def _numbers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask no name server: a name other than localhost is unknown."""
    real = socket.getaddrinfo

    def resolve(host: str, *numbers: int, **named: int) -> object:
        if host == "localhost":
            host = "127.0.0.1"
        return real(host, *numbers, **named, flags=socket.AI_NUMERICHOST)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.parametrize("master", ON_HOST)
def test_a_local_master_stays_on_the_host(master: str) -> None:
    assert stays_on_host(master)
    assert choose_listen_address("127.0.0.1", master) == "127.0.0.1"
    network = cluster_network(master, {}, listen_address="127.0.0.1")
    assert not set(ENCRYPTION) & set(network.properties)
    assert network.warning is None


@pytest.mark.parametrize("master", ["local[*]", "local-cluster[2,1,1024]"])
def test_auto_is_loopback_for_a_local_master(master: str) -> None:
    assert choose_listen_address("auto", master, towards=lambda host, port: LOCAL_ADDRESS) == "127.0.0.1"
    assert cluster_network(master, {}, listen_address="127.0.0.1").properties == {}


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("spark://192.0.2.9:7077", [("192.0.2.9", 7077)]),
        ("spark://127.0.0.1:7077", [("127.0.0.1", 7077)]),
        ("k8s://https://192.0.2.9:6443", [("192.0.2.9", 6443)]),
        ("k8s://https://192.0.2.9/path", [("192.0.2.9", 443)]),
        ("yarn", [("203.0.113.1", 9)]),
    ],
)
def test_auto_is_the_hosts_address_towards_the_master(master: str, expected: list[tuple[str, int]]) -> None:
    destinations: list[tuple[str, int]] = []

    def towards(host: str, port: int) -> str:
        destinations.append((host, port))
        return LOCAL_ADDRESS

    assert choose_listen_address("auto", master, towards=towards) == LOCAL_ADDRESS
    assert destinations == expected


def test_auto_tries_every_master_and_says_why_none_will_do() -> None:
    def towards(host: str, port: int) -> str:
        if host == "a":
            raise OSError(101, "Network is unreachable")
        return "127.0.0.1" if host == "b" else LOCAL_ADDRESS

    assert choose_listen_address("auto", "spark://a:1,b:2,c:3", towards=towards) == LOCAL_ADDRESS
    with pytest.raises(
        ConfigError, match=r"listen_address=auto.*a: Network is unreachable; b: reached by 127\.0\.0\.1"
    ):
        choose_listen_address("auto", "spark://a:1,b:2", towards=towards)


def test_a_master_whose_name_is_unknown_is_a_mistake_in_the_master():
    def towards(host, port):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(ConfigError, match=r"^master=spark://a:1: no host of that name \(a: Name .*; correct the Spark"):
        choose_listen_address("auto", "spark://a:1", towards=towards)


def test_this_hosts_address_towards_itself() -> None:
    assert address_towards("127.0.0.1", 9) == "127.0.0.1"
    with pytest.raises(OSError, match=r"not known|No address"):
        address_towards("no.such.host", 9)


def test_of_a_master_with_two_kinds_of_address_ipv4_is_used_as_spark_does(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(family, socket.SOCK_DGRAM, 0, "", (host, 9)) for family, host in _LOOPBACK]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    assert address_towards("master", 9) == "127.0.0.1"


@pytest.mark.parametrize("master", REMOTE)
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "localhost", "::1"])
def test_loopback_with_a_remote_master_is_refused_by_name(master: str, address: str) -> None:
    with pytest.raises(ConfigError, match=r"listen_address=.*master=.*use listen_address=auto") as caught:
        choose_listen_address(address, master)
    assert f"listen_address={address}:" in str(caught.value)
    assert f"master={master} " in str(caught.value)


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_an_address_that_names_no_host_is_refused(address: str) -> None:
    for master in ("local[2]", "yarn"):
        with pytest.raises(ConfigError, match=f"listen_address={address}: workers connect to the address"):
            choose_listen_address(address, master)


@pytest.mark.parametrize("master", ["yarn", "k8s://https://192.0.2.9:6443"])
def test_yarn_and_kubernetes_make_the_secret_themselves(master: str) -> None:
    assert cluster_network(master, {}, listen_address=LOCAL_ADDRESS).properties == {
        **DRIVER,
        **ENCRYPTION,
        **AUTHENTICATED_CIPHER,
    }


def test_a_standalone_cluster_encrypts_with_its_own_secret() -> None:
    network = cluster_network("spark://192.0.2.9:7077", WITH_SECRET, listen_address=LOCAL_ADDRESS)
    assert network.properties == {**DRIVER, **ENCRYPTION, **AUTHENTICATED_CIPHER}
    assert "hidden" not in repr(network)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"spark.authenticate": "true"},
        {"spark.authenticate.secret": "hidden"},
        {**WITH_SECRET, "spark.authenticate.secret": ""},
    ],
)
def test_a_standalone_cluster_without_a_secret_is_refused_with_the_lines_to_write(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        cluster_network("spark://192.0.2.9:7077", settings, listen_address=LOCAL_ADDRESS)
    message = str(caught.value)
    assert message.startswith(
        "master=spark://192.0.2.9:7077: a standalone cluster encrypts only with a secret of its own"
    )
    assert '"spark.authenticate true", "spark.authenticate.secret SECRET"' in message
    assert "--insecure-network" in message
    assert "hidden" not in message


@pytest.mark.parametrize("master", REMOTE)
@pytest.mark.parametrize("name", list(ENCRYPTION))
def test_settings_that_forbid_encryption_are_refused_unless_allowed(master: str, name: str) -> None:
    settings = {**WITH_SECRET, name: "False"}
    with pytest.raises(ConfigError, match=rf"{name}=False, so that the exchange's secret.*--insecure-network"):
        cluster_network(master, settings, listen_address=LOCAL_ADDRESS)
    allowed = cluster_network(master, settings, listen_address=LOCAL_ADDRESS, insecure_network=True)
    assert allowed.properties == DRIVER
    assert allowed.warning == "the exchange's secret crosses the network in clear, as insecure_network allows"


def test_nothing_to_warn_of_where_the_cluster_encrypts_by_itself() -> None:
    settings = {**WITH_SECRET, **ENCRYPTION}
    network = cluster_network("spark://192.0.2.9:7077", settings, listen_address=LOCAL_ADDRESS, insecure_network=True)
    assert network.warning is None


def test_the_drivers_address_follows_unless_the_settings_give_one() -> None:
    settings = {"spark.driver.host": "driver.svc", "spark.driver.bindAddress": "192.0.2.7"}
    assert cluster_network("k8s://h", settings, listen_address=LOCAL_ADDRESS).properties == {
        **ENCRYPTION,
        **AUTHENTICATED_CIPHER,
    }
    loopback = cluster_network("spark://127.0.0.1:7077", {}, listen_address="127.0.0.1").properties
    assert loopback == {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    six = cluster_network("yarn", {}, listen_address="2001:db8::2").properties
    assert six["spark.driver.host"] == "[2001:db8::2]"


@pytest.mark.parametrize(
    ("requested", "master", "address", "expected"),
    [
        ("auto", "local[2]", "127.0.0.1", "off"),
        ("auto", "spark://[::1]:7077", "::1", "off"),
        ("auto", "spark://192.0.2.9:7077", LOCAL_ADDRESS, "tls"),
        ("auto", "local[2]", LOCAL_ADDRESS, "tls"),
        ("on", "local[2]", "127.0.0.1", "tls"),
        ("mac", "yarn", LOCAL_ADDRESS, "mac"),
        ("off", "local[2]", "127.0.0.1", "off"),
    ],
)
def test_the_exchange_is_encrypted_where_it_leaves_the_host(
    requested: Literal["auto", "on", "off", "mac"], master: str, address: str, expected: str
) -> None:
    chosen = choose_protection(requested, master, listen_address=address)
    assert (chosen.kind, chosen.warning) == (expected, None)


def test_no_protection_on_a_cluster_is_refused_or_warned_of() -> None:
    master = "spark://192.0.2.9:7077"
    with pytest.raises(ConfigError, match=r"tls=off: .*master=spark://192.0.2.9:7077.*tls=mac.*--insecure-network"):
        choose_protection("off", master, listen_address=LOCAL_ADDRESS)
    for spark_master, is_insecure in ((master, True), ("local[2]", False)):
        chosen = choose_protection("off", spark_master, listen_address=LOCAL_ADDRESS, insecure_network=is_insecure)
        assert chosen.kind == "off"
        assert chosen.warning is not None
        assert LOCAL_ADDRESS in chosen.warning


@pytest.mark.parametrize(
    "settings",
    [{"spark.shuffle.service.enabled": "True"}, {"spark.network.crypto.enabled": "true"}],
    ids=["shuffle service", "daemons that encrypt"],
)
def test_the_cipher_is_the_clusters_where_its_daemons_take_part(settings: dict[str, str]) -> None:
    network = cluster_network("spark://192.0.2.9:7077", {**WITH_SECRET, **settings}, listen_address=LOCAL_ADDRESS)
    assert network.properties == {**DRIVER, **ENCRYPTION}
