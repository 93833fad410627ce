"""Makes the certificates of mutual TLS for one run: an authority, and a key with a certificate for each end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from benchmarks.kafka.properties import HOST

VALIDITY: Final = timedelta(days=2)
CLOCK_SKEW: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the authority's certificate, and each end's key followed by its certificate."""

    authority: Path
    broker: Path
    client: Path


def make_certificates(folder: Path) -> Certificates:
    """Make new keys and certificates in ``folder``, which must exist; only this user can read the keys."""
    now = datetime.now(timezone.utc)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _builder("benchmark authority", now, authority_key.public_key())
    authority = authority.issuer_name(_name("benchmark authority"))
    authority = authority.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    signed = authority.sign(authority_key, hashes.SHA256())
    files = Certificates(folder / "authority.pem", folder / "broker.pem", folder / "client.pem")
    files.authority.write_bytes(signed.public_bytes(Encoding.PEM))
    for path in (files.broker, files.client):
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(path.stem, now, key.public_key()).issuer_name(signed.subject)
        # Kafka's client compares the broker's address with its certificate
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST)), x509.DNSName("localhost")])
        certificate = builder.add_extension(names, critical=False).sign(authority_key, hashes.SHA256())
        path.touch(0o600)
        path.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + certificate.public_bytes(Encoding.PEM)
        )
    return files


def _builder(subject: str, now: datetime, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(_name(subject)).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - CLOCK_SKEW).not_valid_after(now + VALIDITY)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
