from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from polybus.cli.endpoint import EMULATOR, Endpoint
from polybus.errors import ConfigError
from polybus.gateway.sas import parse_token

KEYED = "Endpoint=sb://bus.example.net;SharedAccessKeyName=a;SharedAccessKey=b=="


def test_the_emulator_is_spoken_to_in_clear_text() -> None:
    endpoint = Endpoint(EMULATOR)
    assert (endpoint.host, endpoint.port, endpoint.tls) == ("localhost", 5672, False)
    assert endpoint.http_url == "http://localhost:5672"
    assert "UseDevelopmentEmulator=true" in endpoint.connection


def test_everything_else_is_spoken_to_over_tls() -> None:
    endpoint = Endpoint(KEYED)
    assert (endpoint.tls, endpoint.http_url, endpoint.verify) == (True, "https://bus.example.net", True)
    assert endpoint.ssl_context().verify_mode is ssl.CERT_REQUIRED


def test_naming_an_authority_asks_for_tls(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("")
    endpoint = Endpoint(EMULATOR, authority)
    assert (endpoint.tls, endpoint.verify) == (True, str(authority))
    assert "Emulator" not in endpoint.connection
    with pytest.raises(ConfigError, match="no such file"):
        Endpoint(EMULATOR, tmp_path / "other.pem")


def test_insecure_is_tls_with_any_certificate() -> None:
    endpoint = Endpoint(EMULATOR, insecure=True)
    context = endpoint.ssl_context()
    assert (endpoint.tls, endpoint.verify) == (True, False)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_names_in_a_connection_string_have_no_case_and_keys_may_hold_equal_signs() -> None:
    endpoint = Endpoint("endpoint=sb://[::1]:5; SHAREDACCESSKEYNAME=a ;sharedaccesskey=b==;EntityPath=q;")
    assert endpoint.authority == "[::1]:5"
    assert endpoint.connection == "Endpoint=sb://[::1]:5;SharedAccessKeyName=a;SharedAccessKey=b==;EntityPath=q;"


def test_the_token_is_for_the_whole_namespace() -> None:
    token = parse_token(Endpoint(KEYED).token())
    assert token.expires_s > 0
    given = "SharedAccessSignature sr=x&sig=y&se=1&skn=z"
    assert Endpoint(f"Endpoint=sb://h;SharedAccessSignature={given}").token() == given
    with pytest.raises(ConfigError, match="SharedAccessKey"):
        Endpoint("Endpoint=sb://h;SharedAccessKeyName=a").token()


@pytest.mark.parametrize("text", ["", "nonsense", "Endpoint=;SharedAccessKey=x", "SharedAccessKeyName=a"])
def test_what_is_no_connection_string_is_told_without_repeating_it(text: str) -> None:
    with pytest.raises(ConfigError, match=r"Endpoint=sb://HOST") as caught:
        Endpoint(text)
    assert "nonsense" not in str(caught.value)
