"""Secret and certificate of a server. The driver makes both for a run, and keeps no copy of the private key."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from caffe_import.extras import require
from deepspark_ops.exchange.transport.channel.base import Protection
from deepspark_ops.exchange.transport.channel.handshake import SECRET_BYTES
from deepspark_ops.exchange.transport.channel.tls import certificate_digest
from deepspark_ops.exchange.transport.listening.gate import ServerKeys

_VALID = timedelta(days=3_650)
"""No side checks the time: the digest counts, and is as short-lived as the run."""


@dataclass(frozen=True)
class RunCertificate:
    """A self-signed certificate.

    Attributes:
        pem: Private key and certificate; never in a file, an argument or a log.
        digest: SHA-256 of the certificate, by which workers know it.
    """

    pem: bytes = field(repr=False)
    digest: bytes


def make_keys(protection: Protection) -> ServerKeys:
    """Return new keys: a secret, and with TLS a certificate.

    Raises:
        MissingExtra: See ``make_certificate``.
    """
    certificate = make_certificate() if protection == "tls" else RunCertificate(b"", b"")
    return ServerKeys(secrets.token_bytes(SECRET_BYTES), protection, certificate.digest, certificate.pem)


def make_certificate() -> RunCertificate:
    """Return a new certificate, with a new key on the curve P-256: 30 ms.

    Raises:
        MissingExtra: The package ``cryptography`` is not installed.
    """
    require("cryptography", part="TLS of the exchange (--tls on)")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "DeepSpark exchange")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks differ
        .not_valid_after(now + _VALID)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return RunCertificate(
        private + certificate.public_bytes(Encoding.PEM), certificate_digest(certificate.public_bytes(Encoding.DER))
    )
