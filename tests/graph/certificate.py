"""Certificates made at start: an authority of our own, and what it signs for loopback.

Sign-in libraries refuse anything but https, so the service speaks it; nothing outside the test trusts the authority.
The same authority can sign a certificate for a receiver of notifications in a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

_DAYS = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Signer:
    """A key for signing assertions and the certificate that goes with it, as a blueprint has them."""

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate

    @property
    def thumbprint(self) -> bytes:
        """The SHA-256 of the certificate's bytes."""
        return self.certificate.fingerprint(hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(_named(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAYS)
        .not_valid_after(now + _DAYS)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def write_loopback_pair(folder: Path) -> tuple[Path, Path]:
    """Write an authority and a server's key with certificate for loopback; returns both paths, the authority first."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = (
        _builder("test authority", "test authority", authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    leaf = (
        _builder("localhost", "test authority", key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(names, critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    ca, server = folder / "ca.pem", folder / "server.pem"
    ca.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    server.write_bytes(private + leaf.public_bytes(serialization.Encoding.PEM))
    return ca, server


def make_signer(name: str = "blueprint") -> Signer:
    """A fresh RSA key and its self-signed certificate."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return Signer(key, _builder(name, name, key.public_key()).sign(key, hashes.SHA256()))
