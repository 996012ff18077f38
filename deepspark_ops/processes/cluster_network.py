"""Listen addresses of the driver's servers, and Spark's encryption between driver and executors.

Pure decisions from a Spark master's URL and Spark's settings; ``spark_context`` applies the decisions. Encryption
matters for training because the exchange's secret travels in the tasks' closures.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal

from deepspark_ops.errors import ConfigError

AUTO = "auto"
LOOPBACK = "127.0.0.1"
AUTHENTICATE = "spark.authenticate"
CLUSTER_SECRET = "spark.authenticate.secret"
ENCRYPTION = {AUTHENTICATE: "true", "spark.network.crypto.enabled": "true"}
"""Spark properties for encryption of all traffic between driver and executors."""
AUTHENTICATED_CIPHER: Mapping[str, str] = {
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.authEngineVersion": "2",
}
"""Spark's default cipher, AES/CTR, does not detect changed bytes (CVE-2025-55039)."""

_OUTSIDE = (("203.0.113.1", 9), ("2001:db8::1", 9))
"""Addresses for documentation (RFC 5737, RFC 3849): a route to them leaves this host."""
_MAKE_THEIR_OWN_SECRET = ("yarn", "k8s://")
_TRUSTED = "insecure_network=true (--insecure-network) on a network that you trust"


Protection = Literal["off", "mac", "tls"]


@dataclass(frozen=True)
class ExchangeProtection:
    """Protection of the exchange's traffic.

    Attributes:
        kind: See ``exchange.transport.channel.base``.
        warning: Warning for the user; None without a warning.
    """

    kind: Protection
    warning: str | None = None


@dataclass(frozen=True)
class ClusterNetwork:
    """Spark's settings for the network of a job.

    Attributes:
        properties: Spark properties to set before the context starts.
        warning: Warning for the user; None without a warning.
    """

    properties: Mapping[str, str]
    warning: str | None = None


def stays_on_host(master: str) -> bool:
    """Return whether driver and executors of a Spark master all run on this host, so no traffic leaves the host.

    Example:
        >>> [stays_on_host(m) for m in ("local[2]", "local-cluster[2,1,1024]", "spark://127.0.0.1:7077", "yarn")]
        [True, True, True, False]
    """
    if master.startswith("local"):
        return True
    hosts = [host for host, _ in endpoints(master)] if master.startswith("spark://") else []
    return bool(hosts) and all(_is_loopback(host) for host in hosts)


def stays_in_process(master: str) -> bool:
    """Return whether a master runs tasks in the driver's own JVM.

    Example:
        >>> stays_in_process("local[2]"), stays_in_process("local-cluster[1,1,1024]")
        (True, False)
    """
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def choose_listen_address(requested: str, master: str, *, towards: Callable[[str, int], str] | None = None) -> str:
    """Return the listen address of the driver's servers: the exchange's servers and Spark's.

    Args:
        requested: ``auto``, or an address or name of this host.
        master: The job's Spark master.
        towards: ``address_towards``, or a replacement in tests.

    Raises:
        ConfigError: Workers on other hosts could not reach the address, or ``auto`` finds none.
    """
    towards = towards or address_towards
    if requested != AUTO:
        _refuse_unreachable(requested, master)
        return requested
    if master.startswith("local"):
        return LOOPBACK
    on_host, reasons, n_unknown = stays_on_host(master), [], 0
    for host, port in endpoints(master) or _OUTSIDE:
        try:
            address = towards(host, port)
        except OSError as error:
            reasons.append(f"{host}: {error.strerror or error}")
            n_unknown += isinstance(error, socket.gaierror)
            continue
        if on_host or not _is_loopback(address):
            return address
        reasons.append(f"{host}: reached by {address}, which other hosts cannot reach")
    if n_unknown and n_unknown == len(reasons):
        msg = (
            f"master={master}: no host of that name ({'; '.join(reasons)}); correct the Spark master: the option"
            " master, in a DAG the host of the Spark connection"
        )
        raise ConfigError(msg)
    msg = (
        f"listen_address={requested}: found no address of this host towards master={master} ({'; '.join(reasons)});"
        " give listen_address: this host's address on the cluster's network"
    )
    raise ConfigError(msg)


def _refuse_unreachable(requested: str, master: str) -> None:
    remedy = f"use listen_address={AUTO} or this host's address on the cluster's network"
    if _is_wildcard(requested):
        msg = f"listen_address={requested}: workers connect to the address that is given here; {remedy}"
        raise ConfigError(msg)
    if _is_loopback(requested) and not stays_on_host(master):
        msg = f"listen_address={requested}: a loopback address, which workers of master={master} cannot reach; {remedy}"
        raise ConfigError(msg)


def choose_protection(
    requested: Literal["auto", "on", "off", "mac"], master: str, *, listen_address: str, insecure_network: bool = False
) -> ExchangeProtection:
    """Return the protection of the exchange's traffic.

    TLS if the traffic leaves the host, unless an option changes this.

    Args:
        requested: Option ``tls``.
        master: The job's Spark master.
        listen_address: Result of ``choose_listen_address``.
        insecure_network: The user accepts an open network.

    Raises:
        ConfigError: Workers on other hosts would exchange without protection.
    """
    if requested == "on":
        return ExchangeProtection("tls")
    if requested == "mac":
        return ExchangeProtection("mac")
    if _is_loopback(listen_address):
        return ExchangeProtection("off")
    if requested == "auto":
        return ExchangeProtection("tls")
    if not stays_on_host(master) and not insecure_network:
        msg = (
            f"tls=off: workers of master={master} exchange over the network, where anybody on the way could read the"
            " model and change it; use tls=auto (encrypted), tls=mac (in clear, but nothing can be changed), or give"
            f" {_TRUSTED}"
        )
        raise ConfigError(msg)
    return ExchangeProtection(
        "off", f"tls=off: whoever is on the way to {listen_address} can read what workers exchange, and change it"
    )


def cluster_network(
    master: str, settings: Mapping[str, str], *, listen_address: str, insecure_network: bool = False
) -> ClusterNetwork:
    """Return the Spark properties to bind the driver and to encrypt traffic between driver and executors.

    YARN and Kubernetes create a secret for each application. A standalone cluster gives executors the cluster's secret
    and no secret of an application, so the cluster must have a secret.

    Args:
        master: The job's Spark master.
        settings: Present settings of Spark: spark-defaults.conf and the arguments of spark-submit.
        listen_address: Result of ``choose_listen_address``.
        insecure_network: The user accepts missing encryption.

    Raises:
        ConfigError: Some traffic would not be encrypted.
    """
    properties = _driver_address(master, settings, listen_address)
    if stays_on_host(master):
        return ClusterNetwork(properties)
    problem = _encryption_problem(master, settings)
    if insecure_network:
        is_on = problem is None and all(settings.get(name) == value for name, value in ENCRYPTION.items())
        warning = None if is_on else "the exchange's secret crosses the network in clear, as insecure_network allows"
        return ClusterNetwork(properties, warning)
    if problem is not None:
        raise ConfigError(problem)
    return ClusterNetwork({**properties, **ENCRYPTION, **_cipher(settings)})


def _cipher(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties of an authenticating cipher, unless daemons of the cluster need the same setting.

    Encrypting daemons (master, worker, shuffle service) follow the cluster's settings.
    """
    if settings.get("spark.shuffle.service.enabled", "false").strip().lower() == "true" or any(
        name.startswith("spark.network.crypto.") for name in settings
    ):
        return {}
    return AUTHENTICATED_CIPHER


def _driver_address(master: str, settings: Mapping[str, str], address: str) -> dict[str, str]:
    # YARN's and Kubernetes' cluster mode, and hosts behind address translation, set the driver's address.
    if master.startswith("local") or "spark.driver.host" in settings:
        return {}
    host = f"[{address}]" if ":" in address else address
    return {"spark.driver.host": host, "spark.driver.bindAddress": settings.get("spark.driver.bindAddress", host)}


def _encryption_problem(master: str, settings: Mapping[str, str]) -> str | None:
    """Return the reason why the cluster cannot encrypt, with the remedy; None if the cluster can encrypt."""
    clear = "so that the exchange's secret would cross the network in clear"
    off = [name for name, value in ENCRYPTION.items() if settings.get(name, value).strip().lower() != value]
    if off:
        wrong_settings = ", ".join(f"{name}={settings[name]}" for name in off)
        return f"master={master}: Spark's settings say {wrong_settings}, {clear}; remove that there, or give {_TRUSTED}"
    if master.startswith(_MAKE_THEIR_OWN_SECRET) or (AUTHENTICATE in settings and settings.get(CLUSTER_SECRET)):
        return None
    return (
        f"master={master}: a standalone cluster encrypts only with a secret of its own, and Spark's settings here name"
        f' none, {clear}; put "{AUTHENTICATE} true", "{CLUSTER_SECRET} SECRET" and "spark.network.crypto.enabled true"'
        " into conf/spark-defaults.conf (mode 600) of master, workers and this host (SPARK_CONF_DIR names the folder),"
        f" and start master and workers again; or give {_TRUSTED}"
    )


def address_towards(host: str, port: int) -> str:
    """Return this host's address on the route to ``host``, preferably an IPv4 address. Nothing is sent.

    Raises:
        OSError: The name is unknown, or the host has no route to it.
    """
    last = OSError(f"{host} has no address")
    candidates = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    for family, kind, protocol, _, address in sorted(candidates, key=lambda candidate: candidate[0] != socket.AF_INET):
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
        except OSError as error:
            last = error
    raise last


def endpoints(master: str) -> list[tuple[str, int]]:
    """Return (host, port) of each server in a master's URL; empty for YARN and local masters.

    Example:
        >>> endpoints("spark://a:7077,b:7078"), endpoints("k8s://https://[::1]:6443"), endpoints("yarn")
        ([('a', 7077), ('b', 7078)], [('::1', 6443)], [])
    """
    if "://" not in master:
        return []
    servers = []
    for server in master.rpartition("://")[2].split("/")[0].split(","):
        if match := re.fullmatch(r"\[(.+)\](?::(\d+))?|([^:]+)(?::(\d+))?", server.strip()):
            servers.append((match[1] or match[3], int(match[2] or match[4] or 443)))
    return servers


def _addresses(host: str) -> list[str]:
    """Return the addresses of a host; empty if the name is unknown."""
    with suppress(OSError):
        return [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    return []


def _is_loopback(host: str) -> bool:
    addresses = _addresses(host)
    return bool(addresses) and all(ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def _is_wildcard(host: str) -> bool:
    return any(ip_address(address.partition("%")[0]).is_unspecified for address in _addresses(host))
