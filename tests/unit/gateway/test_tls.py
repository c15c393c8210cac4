"""The development certificates: made once, trusted by real TLS clients, renewed when they must be."""

from __future__ import annotations

import datetime
import shlex
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from polybus.errors import ConfigError
from polybus.gateway.tls import (
    AUTHORITY_DAYS,
    SERVER_DAYS,
    CertificateFiles,
    ensure_certificates,
    server_context,
    subject_names,
    trust_lines,
)

# A handshake checks against the machine's own clock, so this is the time that certificates begin with here.
NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
DAY = datetime.timedelta(days=1)


def contents(files: CertificateFiles) -> tuple[bytes, bytes]:
    return files.authority.read_bytes(), files.certificate.read_bytes()


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def names_in(path: Path) -> set[str]:
    names = certificate(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """A handshake through memory; whoever objects raises."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server, server_hostname=name)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [here, there]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)
    return here


def trusting(files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.authority))
    # What newer Pythons do by default.
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "bus.example.net", "any.wild.example"])
def test_clients_that_trust_the_authority_get_through(tmp_path: Path, name: str) -> None:
    files = ensure_certificates(tmp_path / "tls", NOW, ["bus.example.net", "*.wild.example"])
    session = handshake(server_context(files.certificate, files.key), trusting(files), name)
    assert session.version() == "TLSv1.3"


def test_other_names_and_other_authorities_do_not(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path / "one", NOW)
    others = ensure_certificates(tmp_path / "two", NOW)
    server = server_context(files.certificate, files.key)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, trusting(files), "elsewhere.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, trusting(others), "localhost")


def test_tls_1_2_is_the_least(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, NOW)
    server = server_context(files.certificate, files.key)
    assert server.minimum_version is ssl.TLSVersion.TLSv1_2
    client = trusting(files)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(server, client, "localhost").version() == "TLSv1.2"


def test_http_1_1_is_chosen_from_what_a_client_offers(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, NOW)
    server, client = server_context(files.certificate, files.key), trusting(files)
    client.set_alpn_protocols(["h2", "http/1.1"])
    assert handshake(server, client, "localhost").selected_alpn_protocol() == "http/1.1"


def test_files_and_their_modes(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path / "tls", NOW)
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()}
    assert set(found) == {"ca.pem", "ca-key.pem", "server.pem", "server-key.pem"}
    assert found["ca-key.pem"] == found["server-key.pem"] == 0o600
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    assert files == CertificateFiles.in_folder(tmp_path / "tls")


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    first = contents(ensure_certificates(tmp_path, NOW, ["a.example"]))
    again = contents(ensure_certificates(tmp_path, NOW + 30 * DAY, [" A.example ", "a.example", ""]))
    assert again == first


def test_other_names_renew_the_server_and_keep_the_authority(tmp_path: Path) -> None:
    authority, server = contents(ensure_certificates(tmp_path, NOW))
    files = ensure_certificates(tmp_path, NOW, ["new.example", "10.0.0.7", "fd00::7"])
    assert files.authority.read_bytes() == authority
    assert files.certificate.read_bytes() != server
    assert {"localhost", "127.0.0.1", "::1", "new.example", "10.0.0.7", "fd00::7"} <= names_in(files.certificate)


@pytest.mark.parametrize("days", [SERVER_DAYS - 7, SERVER_DAYS, 3 * SERVER_DAYS])
def test_a_server_certificate_that_runs_out_is_renewed(tmp_path: Path, days: int) -> None:
    authority, server = contents(ensure_certificates(tmp_path, NOW))
    files = ensure_certificates(tmp_path, NOW + days * DAY)
    assert files.authority.read_bytes() == authority
    assert files.certificate.read_bytes() != server
    assert certificate(files.certificate).not_valid_after_utc > NOW + (days + 300) * DAY


def test_an_authority_that_runs_out_is_replaced_with_everything(tmp_path: Path) -> None:
    authority, server = contents(ensure_certificates(tmp_path, NOW))
    files = ensure_certificates(tmp_path, NOW + AUTHORITY_DAYS * DAY)
    assert files.authority.read_bytes() != authority
    assert files.certificate.read_bytes() != server


def test_a_clock_before_the_certificate_makes_another(tmp_path: Path) -> None:
    _, server = contents(ensure_certificates(tmp_path, NOW))
    assert contents(ensure_certificates(tmp_path, NOW - 100 * DAY))[1] != server


@pytest.mark.parametrize("broken", ["ca.pem", "ca-key.pem", "server.pem", "server-key.pem"])
@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
def test_missing_and_broken_files_are_made_again(tmp_path: Path, broken: str, content: bytes | None) -> None:
    ensure_certificates(tmp_path, NOW)
    if content is None:
        (tmp_path / broken).unlink()
    else:
        (tmp_path / broken).write_bytes(content)
    files = ensure_certificates(tmp_path, NOW)
    handshake(server_context(files.certificate, files.key), trusting(files), "localhost")


def test_a_key_of_another_certificate_is_not_used(tmp_path: Path) -> None:
    one, two = ensure_certificates(tmp_path / "1", NOW), ensure_certificates(tmp_path / "2", NOW)
    one.key.write_bytes(two.key.read_bytes())
    files = ensure_certificates(tmp_path / "1", NOW)
    handshake(server_context(files.certificate, files.key), trusting(files), "localhost")


def test_a_left_over_temporary_file_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "ca-key.pem.new").write_bytes(b"half")
    files = ensure_certificates(tmp_path, NOW)
    assert b"PRIVATE KEY" in files.authority_key.read_bytes()
    assert not (tmp_path / "ca-key.pem.new").exists()


def test_the_certificates_may_do_only_their_own_work(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, NOW)
    authority, server = certificate(files.authority), certificate(files.certificate)
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert server.not_valid_after_utc - server.not_valid_before_utc <= 398 * DAY
    server.verify_directly_issued_by(authority)


@pytest.mark.parametrize("name", ["a b", "a..b", ".", "x" * 64 + ".example", "a\nb", "a,b", "http://h", "*", "a.*.b"])
def test_names_that_no_certificate_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="neither a host name nor an address"):
        ensure_certificates(tmp_path, NOW, [name])


def test_names_are_each_there_once() -> None:
    assert subject_names(["LOCALHOST", "[::1]", "B.example", "b.example"]) == (
        "localhost",
        "127.0.0.1",
        "::1",
        "b.example",
    )


def test_the_lines_to_trust_it() -> None:
    lines = trust_lines(Path("/data dir/tls/ca.pem")).splitlines()
    assert [shlex.split(line) for line in lines] == [
        ["export", "REQUESTS_CA_BUNDLE=/data dir/tls/ca.pem"],
        ["export", "SSL_CERT_FILE=/data dir/tls/ca.pem"],
        ["export", "NODE_EXTRA_CA_CERTS=/data dir/tls/ca.pem"],
    ]
