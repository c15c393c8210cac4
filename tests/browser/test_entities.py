"""Creating and changing queues, topics, subscriptions and rules by clicking; what cannot change; exports."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import expect

from polybus.gateway.config.file import load
from polybus.namespace.entities.tiers import STANDARD
from tests.browser.kit import Bus, Hand


def test_a7_h3_a_queue_is_created_with_partitioning_ticked_to_begin_with(hand: Hand, bus: Bus) -> None:
    hand.go("Queues and topics")
    hand.click("Create queue")
    hand.fill("Name", "orders")
    expect(hand.page.get_by_role("checkbox", name="Enable partitioning")).to_be_checked()
    hand.click("Create queue", within=hand.dialog)
    hand.heading("orders")
    assert hand.clicks == 3
    assert bus.administration.get_queue("orders").enable_partitioning is True


def test_a7_partitioning_can_be_unticked_in_standard(hand: Hand, bus: Bus) -> None:
    hand.go("Queues and topics")
    hand.click("Create queue")
    hand.fill("Name", "plain")
    hand.tick("Enable partitioning")
    hand.click("Create queue", within=hand.dialog)
    hand.heading("plain")
    assert hand.clicks == 4
    assert bus.administration.get_queue("plain").enable_partitioning is False
    expect(hand.page.locator(".max-size")).to_have_text("1 GB")


def test_a8_five_gigabytes_hold_eighty_and_the_overview_shows_it(hand: Hand, bus: Bus) -> None:
    hand.go("Queues and topics")
    hand.click("Create queue")
    hand.fill("Name", "large")
    sizes = hand.page.get_by_label("Maximum size").locator("option")
    assert sizes.all_text_contents() == ["1 GB", "2 GB", "3 GB", "4 GB", "5 GB"]
    hand.select("Maximum size", "5120")
    hand.sees("80 GB in all: 16 partitions of 5 GB")
    hand.click("Create queue", within=hand.dialog)
    expect(hand.page.locator(".max-size")).to_have_text("80 GB")
    hand.sees("16 partitions of 5 GB")
    assert hand.clicks == 5
    assert bus.administration.get_queue("large").max_size_in_megabytes == 81920


def test_every_property_of_a_new_queue_reaches_the_bus(hand: Hand, bus: Bus) -> None:
    bus.queue("after")
    hand.go("Queues and topics")
    hand.click("Create queue")
    hand.fill("Name", "detailed")
    for ticked in ("Require sessions", "Dead-letter what expires", "Detect duplicates"):
        hand.tick(ticked)
    hand.fill("Lock duration", "2")
    hand.fill("Maximum delivery count", "7")
    hand.select("Message time to live, unit", "d")
    hand.fill("Message time to live", "3")
    hand.fill("Duplicate detection window", "5")
    hand.fill("Forward dead letters to", "after")
    hand.fill("Metadata", "made by <b>hand</b>")
    hand.click("Create queue", within=hand.dialog)
    hand.heading("detailed")
    made = bus.administration.get_queue("detailed")
    assert (made.requires_session, made.requires_duplicate_detection) == (True, True)
    assert made.dead_lettering_on_message_expiration is True
    assert (made.lock_duration.total_seconds(), made.max_delivery_count) == (120, 7)
    assert made.default_message_time_to_live.days == 3
    assert made.duplicate_detection_history_time_window.total_seconds() == 300
    assert made.forward_dead_lettered_messages_to.endswith("/after")
    assert made.user_metadata == "made by <b>hand</b>"
    hand.sees("made by <b>hand</b>")


def test_what_the_bus_refuses_is_said_in_the_form(hand: Hand, bus: Bus) -> None:
    bus.queue("taken")
    hand.go("Queues and topics")
    hand.click("Create queue")
    hand.fill("Name", "taken")
    hand.click("Create queue", within=hand.dialog)
    expect(hand.dialog.get_by_role("alert")).to_contain_text("already exists")


def test_a_queue_is_changed_and_what_cannot_change_is_shown_as_such(hand: Hand, bus: Bus) -> None:
    bus.queue("changing", enable_partitioning=True, max_size_in_megabytes=2048)
    hand.open("#/entity/changing")
    hand.go("Properties")
    for fixed in ("Enable partitioning", "Require sessions", "Detect duplicates"):
        expect(hand.page.get_by_role("checkbox", name=fixed)).to_be_disabled()
    expect(hand.page.get_by_label("Maximum size", exact=True)).to_have_value("2048")
    hand.fill("Maximum delivery count", "3")
    hand.click("Save changes")
    hand.sees_note("Saved changing")
    assert hand.clicks == 2
    changed = bus.administration.get_queue("changing")
    assert (changed.max_delivery_count, changed.enable_partitioning, changed.max_size_in_megabytes) == (
        3,
        True,
        32768,
    )


def test_a_queue_is_deleted_after_its_name_was_typed(hand: Hand, bus: Bus) -> None:
    bus.queue("doomed")
    hand.open("#/entity/doomed")
    hand.click("Delete")
    button = hand.dialog.get_by_role("button", name="Delete queue")
    expect(button).to_be_disabled()
    hand.fill("Type doomed to confirm", "doomed")
    button.click()
    hand.heading("Queues and topics")
    expect(hand.page.get_by_role("link", name="doomed")).to_have_count(0)
    assert "doomed" not in [queue.name for queue in bus.administration.list_queues()]


def test_h3_a_topic_with_a_subscription_and_a_rule(hand: Hand, bus: Bus) -> None:
    hand.go("Queues and topics")
    hand.click("Create topic")
    hand.fill("Name", "news")
    hand.click("Create topic", within=hand.dialog)
    hand.heading("news")
    hand.go("Subscriptions")
    hand.click("Create subscription")
    hand.fill("Name", "urgent")
    hand.click("Create subscription", within=hand.dialog)
    hand.heading("urgent")
    hand.click("Create rule")
    hand.fill("Name", "large")
    hand.fill("Condition", "amount > 100")
    hand.fill("Action", "SET priority = 'high'")
    hand.click("Create rule", within=hand.dialog)
    expect(hand.page.get_by_role("row", name="large")).to_contain_text("amount > 100")
    assert hand.clicks == 8
    hand.click("Delete $Default")
    hand.click("Delete rule", within=hand.dialog)
    expect(hand.page.get_by_role("row", name="$Default")).to_have_count(0)
    (rule,) = bus.administration.list_rules("news", "urgent")
    assert (rule.name, rule.filter.sql_expression, rule.action.sql_expression) == (
        "large",
        "amount > 100",
        "SET priority = 'high'",
    )
    assert bus.administration.get_topic("news").enable_partitioning is True


def test_a_correlation_rule_with_typed_properties(hand: Hand, bus: Bus) -> None:
    bus.administration.create_topic("typed")
    bus.administration.create_subscription("typed", "one")
    hand.open("#/entity/typed%2FSubscriptions%2Fone/rules")
    hand.click("Create rule")
    hand.fill("Name", "by-tenant")
    hand.choose("Correlation")
    hand.fill("Label", "created")
    hand.click("Add property", within=hand.dialog)
    hand.fill("Property 1, name", "tenant", hand.dialog)
    hand.fill("Property 1, value", "5", hand.dialog)
    hand.dialog.get_by_label("Property 1, type").select_option("number")
    hand.click("Create rule", within=hand.dialog)
    hand.sees_note("Saved the rule by-tenant")
    rule = bus.administration.get_rule("typed", "one", "by-tenant")
    assert (rule.filter.label, rule.filter.properties) == ("created", {"tenant": 5})


def test_a_message_is_tried_on_the_rules(hand: Hand, bus: Bus) -> None:
    from azure.servicebus.management import SqlRuleAction, SqlRuleFilter

    bus.administration.create_topic("tried")
    bus.administration.create_subscription("tried", "all")
    bus.administration.create_subscription("tried", "large")
    bus.administration.delete_rule("tried", "large", "$Default")
    action = SqlRuleAction("SET priority = 'high'")
    bus.administration.create_rule("tried", "large", "amount", filter=SqlRuleFilter("amount > 100"), action=action)
    hand.open("#/entity/tried/subscriptions")
    hand.fill("Property 1, name", "amount")
    hand.fill("Property 1, value", "250")
    hand.select("Property 1, type", "number")
    hand.click("Try it")
    verdict = hand.page.locator(".verdict", has_text="large")
    expect(verdict).to_contain_text("gets it")
    expect(verdict.locator("pre")).to_contain_text('"priority": "high"')
    assert hand.clicks == 3
    hand.fill("Property 1, value", "50")
    hand.click("Try it")
    expect(verdict).to_contain_text("does not get it")
    properties = bus.administration.get_subscription_runtime_properties("tried", "all")
    assert properties.total_message_count == 0


def test_an_access_rule_gets_keys_of_its_own(hand: Hand, bus: Bus) -> None:
    bus.queue("guarded")
    hand.open("#/entity/guarded")
    hand.go("Access")
    hand.click("Create access rule")
    hand.fill("Key name", "reader")
    hand.click("Create key", within=hand.dialog)
    expect(hand.page.get_by_role("row", name="reader")).to_contain_text("Listen")
    assert hand.clicks == 3
    (rule,) = bus.administration.get_queue("guarded").authorization_rules
    assert (rule.key_name, rule.rights) == ("reader", ["Listen"])
    assert rule.primary_key
    hand.go("Overview", within=hand.page.get_by_role("navigation", name="Sections"))
    assert rule.primary_key not in hand.page.content()


def test_the_namespace_is_exported_as_a_file(hand: Hand, bus: Bus, tmp_path: Path) -> None:
    bus.queue("exported", enable_partitioning=True)
    hand.go("Queues and topics")
    with hand.page.expect_download() as download:
        hand.click("Export config.json")
    assert hand.clicks == 2
    download.value.save_as(tmp_path / "config.json")
    text = (tmp_path / "config.json").read_text()
    queues = load(text, "config.json", STANDARD).namespaces[0].queues
    assert [queue.enable_partitioning for queue in queues if queue.path == "exported"] == [True]
    assert "SAS_KEY_VALUE" not in text
    with hand.page.expect_download() as download:
        hand.click("Export template")
    download.value.save_as(tmp_path / "template.json")
    template = json.loads((tmp_path / "template.json").read_text())
    named = [each for each in template["resources"] if "'/exported'" in each["name"] or "/exported" in each["name"]]
    assert [each["properties"]["enablePartitioning"] for each in named] == [True]
