"""Logging in: with a key, a connection string, the key of one queue; and what each right shows."""

from __future__ import annotations

import re

from azure.servicebus.management import AccessRights, AuthorizationRule
from playwright.sync_api import expect

from tests.browser.kit import KEY, Bus, Hand


def test_the_page_asks_for_a_key_and_opens_with_it(stranger: Hand) -> None:
    stranger.open()
    expect(stranger.page.get_by_role("button", name="Log in")).to_be_visible()
    stranger.fill("Key", KEY[1])
    stranger.click("Log in")
    stranger.heading("Overview")
    assert stranger.clicks == 1
    stranger.page.reload()
    stranger.heading("Overview")


def test_a_wrong_key_is_told_and_opens_nothing(stranger: Hand) -> None:
    stranger.open()
    stranger.fill("Key", "wrong")
    stranger.click("Log in")
    expect(stranger.page.get_by_role("alert")).to_contain_text("invalid signature")
    stranger.sees_no("Main", "navigation")


def test_a_connection_string_is_understood(stranger: Hand) -> None:
    stranger.open()
    stranger.choose("Connection string")
    stranger.fill("Connection string", stranger.bus.server.connection_string)
    stranger.click("Log in")
    stranger.heading("Overview")


def test_no_key_is_kept_and_logging_out_forgets_the_token(hand: Hand) -> None:
    kept = "JSON.stringify([Object.entries(sessionStorage), Object.entries(localStorage), document.cookie])"
    text = hand.page.evaluate(kept)
    assert "SharedAccessSignature" in text
    assert KEY[1] not in text
    hand.click("Log out")
    expect(hand.page.get_by_role("button", name="Log in")).to_be_visible()
    assert "SharedAccessSignature" not in hand.page.evaluate(kept)
    hand.page.reload()
    expect(hand.page.get_by_role("button", name="Log in")).to_be_visible()


def test_a_listen_key_looks_but_does_not_send_or_change(stranger: Hand, bus: Bus) -> None:
    bus.queue("looked-at")
    bus.send("looked-at", ["seen"])
    stranger.log_in("listener", "listen key")
    stranger.go("Queues and topics")
    stranger.sees_no("Create queue")
    stranger.sees_no("Export")
    stranger.go("looked-at")
    stranger.heading("looked-at")
    for absent in ("Send message", "Delete"):
        stranger.sees_no(absent)
    for absent in ("Access", "Properties", "Faults and clock"):
        stranger.sees_no(absent, "link")
    stranger.go("Messages")
    stranger.sees("seen")
    stranger.sees_no("Move all")


def test_a_send_key_sends_but_does_not_look(stranger: Hand, bus: Bus) -> None:
    bus.queue("sent-to")
    stranger.log_in("sender", "send key")
    stranger.go("Queues and topics")
    stranger.go("sent-to")
    stranger.sees_no("Cursors", "link")
    stranger.click("Send message")
    stranger.fill("Body", "from the sender")
    stranger.click("Send", within=stranger.dialog, exact=True)
    stranger.sees_note("Sent 1 to sent-to")
    assert [str(message) for message in bus.take("sent-to")] == ["from the sender"]


def test_the_key_of_one_queue_opens_that_one(stranger: Hand, bus: Bus) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.LISTEN],
        key_name="own",
        primary_key="b3duIGtleSBvZiBvbmUgcXVldWUgYWxvbmUgMzI=",
        secondary_key="b3RoZXIga2V5IG9mIG9uZSBxdWV1ZSBhbG9uZSA=",
    )
    bus.queue("mine", authorization_rules=[rule])
    bus.queue("not-mine")
    stranger.log_in("own", rule.primary_key or "", entity="mine")
    expect(stranger.page.get_by_role("link", name="mine", exact=True)).to_be_visible()
    stranger.sees_no("not-mine", "link")
    stranger.sees_no("Node and stores", "link")


def test_a_session_that_has_ended_asks_again(stranger: Hand) -> None:
    stranger.log_in()
    # Whoever's key was changed meanwhile: the token that this tab holds opens nothing any more.
    spoil = (
        "sessionStorage.setItem('polybus.login', sessionStorage.getItem('polybus.login').replace('&se=', '&se=1'))"
    )
    stranger.page.evaluate(spoil)
    stranger.page.reload()
    expect(stranger.page.get_by_role("button", name="Log in")).to_be_visible()


def test_addresses_have_no_secret(hand: Hand, bus: Bus) -> None:
    bus.queue("plain-address")
    hand.go("Queues and topics")
    hand.go("plain-address")
    assert re.fullmatch(re.escape(bus.url) + r"#/entity/plain-address", hand.page.url)
