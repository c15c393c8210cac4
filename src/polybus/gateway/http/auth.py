"""Who may do what over HTTP: the token in a header, checked at the gateway's one gate (docs/protocol/sas.md#http)."""

from __future__ import annotations

from polybus.gateway.gateway import Grant
from polybus.gateway.http.request import HttpCall
from polybus.gateway.sas import Rights, is_sas, require

_BEARER = "bearer "


def authorize(call: HttpCall, path: str, needed: Rights) -> Grant:
    """What the request's token allows on a path of the namespace; Unauthorized where that is not enough.

    `path` is what the request was routed to, in canonical spelling, never the text of its URL: what is checked is
    what is done.
    """
    return allow(call, call.headers.get("authorization"), path, needed)


def allow(call: HttpCall, token: str | None, path: str, needed: Rights) -> Grant:
    """The same for a token that stands in some other header."""
    resource = f"sb://{call.namespace.name}/{path}"
    if call.judges_address:
        call.gateway.check_address(call.namespace, call.client_host)
    grant = call.gateway.check_token(call.namespace, _bare(token), resource)
    require(grant.rights, needed, resource)
    call.show_known()
    return grant


def authorize_everywhere(call: HttpCall) -> None:
    """For what concerns the bus as a whole: Manage in every namespace of it."""
    token = _bare(call.headers.get("authorization"))
    for namespace in call.gateway.bus.namespaces.values():
        call.gateway.check_address(namespace, call.client_host)
        resource = f"sb://{namespace.name}/"
        require(call.gateway.check_token(namespace, token, resource).rights, Rights.MANAGE, resource)


def authorize_any(call: HttpCall, path: str) -> Grant:
    """For what every right opens."""
    grant = authorize(call, path, Rights.NONE)
    if not grant.rights:
        require(grant.rights, Rights.MANAGE, path)
    return grant


def _bare(token: str | None) -> str | None:
    """A JWT comes behind the word Bearer; a signature brings its own prefix."""
    if token is None or is_sas(token):
        return token
    text = token.strip()
    return text[len(_BEARER) :].strip() if text.lower().startswith(_BEARER) else text
