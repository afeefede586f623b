"""Certificates for servers on this machine, by certification authorities of the tests' own."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                             serialization.NoEncryption())


class Authority:
    """Its own certificate is the file self.bundle."""

    def __init__(self, directory, name):
        self.directory, self.name = directory, _name(name)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.bundle = directory / f"{name}.pem"
        certificate = self._sign(self.name, self.key.public_key(), 30 * DAY, [
            (x509.BasicConstraints(ca=True, path_length=None), True)])
        self.bundle.write_bytes(certificate)

    def _sign(self, subject, public_key, until, extensions):
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(public_key)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - 30 * DAY).not_valid_after(now + until)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, name, host="127.0.0.1", until=DAY):
        """The path of a file with a certificate for that host, an address or a name, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            alternative = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            alternative = x509.DNSName(host)
        path = self.directory / f"{name}.pem"
        path.write_bytes(_pem(key) + self._sign(_name(host), key.public_key(), until, [
            (x509.SubjectAlternativeName([alternative]), False)]))
        return path
