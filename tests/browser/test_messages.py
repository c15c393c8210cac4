"""Messages by clicking: looked at, searched, sent, resubmitted, purged, cancelled, made active; on partitioned queues."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from playwright.sync_api import expect

from tests.browser.kit import Bus, Hand

HOSTILE = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>{{7*7}}${7*7}'


def orders(number: int, start: int = 0) -> list[ServiceBusMessage]:
    return [
        ServiceBusMessage(
            json.dumps({"order": each}),
            message_id=f"order-{each}",
            subject="created" if each % 2 else "changed",
            content_type="application/json",
            application_properties={"tenant": each % 3, "region": "eu"},
        )
        for each in range(start, start + number)
    ]


def rows(hand: Hand) -> Any:
    return hand.page.get_by_role("region", name="Messages").locator("tbody tr")


def test_messages_are_browsed_by_state(hand: Hand, bus: Bus) -> None:
    bus.queue("states", enable_partitioning=True)
    bus.send("states", orders(6))
    bus.kill("states", 2, "Refused", "The card was refused.")
    with bus.client.get_queue_receiver("states") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=10)
        receiver.defer_message(message)
    with bus.client.get_queue_sender("states") as sender:
        sender.schedule_messages(ServiceBusMessage("later", message_id="due"), datetime.now(UTC) + timedelta(hours=1))
    hand.open("#/entity/states")
    hand.go("Messages")
    expect(rows(hand)).to_have_count(3)
    assert hand.clicks == 1
    for state, number in (("Scheduled", 1), ("Deferred", 1), ("Dead-lettered", 2)):
        hand.choose(state)
        expect(rows(hand)).to_have_count(number)
    expect(rows(hand).first).to_contain_text("Refused")


def test_a_message_is_inspected(hand: Hand, bus: Bus) -> None:
    bus.queue("inspected", enable_partitioning=True)
    bus.send("inspected", orders(1))
    bus.kill("inspected", 1, "Refused", "The card was refused.")
    hand.open("#/entity/inspected/messages/dead-lettered")
    hand.click("order-0")
    for text in ("Refused", "The card was refused.", '"order": 0', "tenant", "changed", "application/json"):
        expect(hand.dialog).to_contain_text(text)
    assert hand.clicks == 1
    hand.choose("Hex")
    expect(hand.dialog.locator("pre")).to_contain_text("7b 22 6f 72 64 65 72 22")
    hand.page.keyboard.press("Escape")
    expect(hand.dialog).to_have_count(0)


def test_bytes_that_are_no_text_are_shown_in_hex(hand: Hand, bus: Bus) -> None:
    bus.queue("bytes")
    bus.send("bytes", [ServiceBusMessage(bytes(range(256)), message_id="raw")])
    hand.open("#/entity/bytes/messages")
    expect(rows(hand).first).to_contain_text("256 bytes")
    hand.click("raw")
    expect(hand.dialog.locator("pre")).to_contain_text("fc fd fe ff")
    expect(hand.dialog.get_by_role("radio")).to_have_count(1)


def test_text_from_messages_stays_text(hand: Hand, bus: Bus) -> None:
    message = ServiceBusMessage(
        HOSTILE,
        message_id=HOSTILE[:120],
        subject=HOSTILE,
        session_id=None,
        content_type=HOSTILE,
        application_properties={HOSTILE: HOSTILE},
    )
    bus.queue("hostile", user_metadata=HOSTILE)
    bus.send("hostile", [message, ServiceBusMessage(json.dumps({HOSTILE: HOSTILE}), message_id="json")])
    bus.kill("hostile", 1, HOSTILE, HOSTILE)
    hand.open("#/entity/hostile")
    hand.sees("<img src=x")
    hand.go("Messages")
    expect(rows(hand)).to_have_count(1)
    hand.click("json")
    expect(hand.dialog.locator("pre")).to_contain_text("<script>window.broken=1</script>")
    hand.page.keyboard.press("Escape")
    hand.choose("Dead-lettered")
    rows(hand).first.get_by_role("button").click()
    expect(hand.dialog.locator(".reason")).to_contain_text("<script>window.broken=1</script>{{7*7}}${7*7}")
    assert hand.dialog.locator("img, script, iframe").count() == 0
    hand.click("Send a copy")
    hand.page.keyboard.press("Escape")
    assert hand.page.evaluate("window.broken") is None


def test_messages_are_found_by_id_property_condition_time_and_partition(hand: Hand, bus: Bus) -> None:
    bus.queue("searched", enable_partitioning=True)
    bus.send("searched", orders(120))
    hand.open("#/entity/searched/messages")
    expect(rows(hand)).to_have_count(50)
    hand.click("Next 50")
    hand.sees("50 shown, there are more")
    hand.click("Next 50")
    expect(rows(hand)).to_have_count(20)
    hand.page.get_by_text("Search and filter").click()
    hand.fill("Message id", "order-77")
    hand.click("Search", exact=True)
    expect(rows(hand)).to_have_count(1)
    expect(rows(hand)).to_contain_text("order-77")
    hand.click("Clear", exact=True)
    hand.fill("Property name", "tenant")
    hand.fill("Property value", "2")
    hand.fill("Message id", "order-1%")
    hand.click("Search", exact=True)
    expect(rows(hand)).to_have_count(len([n for n in range(120) if n % 3 == 2 and str(n).startswith("1")]))
    hand.click("Clear", exact=True)
    hand.fill("Condition", "tenant = 0 AND sys.Label = 'created'")
    hand.select("Partition", "3")
    hand.click("Search", exact=True)
    expect(rows(hand).locator("td:nth-child(3)").filter(has_not_text=re.compile(r"^3:"))).to_have_count(0)
    expect(rows(hand)).not_to_have_count(0)
    hand.click("Clear", exact=True)
    hand.fill("Enqueued before", "2020-01-01T00:00:00")
    hand.click("Search", exact=True)
    hand.sees("Nothing fits the search")


def test_a_message_is_sent_with_properties(hand: Hand, bus: Bus) -> None:
    bus.queue("sent", enable_partitioning=True)
    hand.open("#/entity/sent")
    hand.click("Send message")
    hand.fill("Body", '{"naïve": "✓"}')
    hand.click("Send", within=hand.dialog, exact=True)
    hand.sees_note("Sent 1 to sent")
    assert hand.clicks == 2
    assert [str(message) for message in bus.take("sent")] == ['{"naïve": "✓"}']
    hand.click("Send message")
    hand.fill("Body", "with all")
    hand.fill("Subject", "ünïcode", hand.dialog)
    hand.click("Add property", within=hand.dialog)
    hand.fill("Property 1, name", "größe")
    hand.fill("Property 1, value", "7")
    hand.dialog.get_by_label("Property 1, type").select_option("number")
    hand.page.get_by_text("More: id, keys").click()
    hand.fill("Message id", "my-id", hand.dialog)
    hand.fill("Partition key", "k", hand.dialog)
    hand.fill("Time to live, in seconds", "3600", hand.dialog)
    hand.click("Send", within=hand.dialog, exact=True)
    hand.sees_note("Sent 1 to sent")
    expect(hand.dialog).to_have_count(0)
    (message,) = bus.take("sent")
    assert (message.message_id, message.subject, message.partition_key) == ("my-id", "ünïcode", "k")
    assert message.application_properties == {"größe".encode(): 7}
    assert message.time_to_live == timedelta(hours=1)


def test_a_file_is_sent_and_copies_are_counted(hand: Hand, bus: Bus, tmp_path: Path) -> None:
    bus.queue("files")
    data = bytes(range(256)) * 40
    (tmp_path / "picture.bin").write_bytes(data)
    hand.open("#/entity/files")
    hand.click("Send message")
    hand.dialog.locator("input[type=file]").set_input_files(tmp_path / "picture.bin")
    hand.sees("picture.bin")
    hand.fill("Copies", "3", hand.dialog)
    hand.click("Send", within=hand.dialog, exact=True)
    hand.sees_note("Sent 3 to files")
    received = bus.take("files")
    assert [b"".join(message.body) for message in received] == [data] * 3
    assert len({message.message_id for message in received}) == 3


def test_a_copy_of_a_message_is_sent(hand: Hand, bus: Bus) -> None:
    bus.queue("copied")
    bus.send("copied", orders(1))
    hand.open("#/entity/copied/messages")
    hand.click("order-0")
    hand.click("Send a copy")
    expect(hand.dialog.get_by_label("Body")).to_have_value('{"order": 0}')
    hand.fill("Body", '{"order": 100}')
    hand.click("Send", within=hand.dialog, exact=True)
    hand.sees_note("Sent 1 to copied")
    assert hand.clicks == 3
    first, second = bus.take("copied")
    assert [str(first), str(second)] == ['{"order": 0}', '{"order": 100}']
    assert second.subject == "changed"


@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
def test_all_dead_letters_are_resubmitted_with_a_count_before(hand: Hand, bus: Bus, partitioned: bool) -> None:
    name = bus.queue(f"dead-{partitioned}", enable_partitioning=partitioned)
    bus.send(name, orders(60))
    bus.kill(name, 60)
    hand.open(f"#/entity/{name}/messages/dead-lettered")
    hand.click("Resubmit all")
    expect(hand.dialog).to_contain_text("60 messages")
    hand.click("Resubmit 60", within=hand.dialog)
    hand.sees_note("Resubmitted 60.")
    assert hand.clicks == 2
    counts = bus.counts(name)
    assert (counts.active_message_count, counts.dead_letter_message_count) == (60, 0)


def test_chosen_dead_letters_are_resubmitted_elsewhere(hand: Hand, bus: Bus) -> None:
    bus.queue("here", enable_partitioning=True)
    bus.queue("elsewhere")
    bus.send("here", orders(5))
    bus.kill("here", 5)
    hand.open("#/entity/here/messages/dead-lettered")
    hand.tick("Select order-1")
    hand.tick("Select order-3")
    hand.click("Resubmit 2 selected")
    hand.select("To", "other")
    hand.fill("Destination", "elsewhere")
    hand.click("Resubmit 2", within=hand.dialog)
    hand.sees_note("Resubmitted 2.")
    assert hand.clicks == 6
    assert sorted(message.message_id for message in bus.take("elsewhere")) == ["order-1", "order-3"]
    assert bus.counts("here").dead_letter_message_count == 3


def test_a_dead_letter_is_edited_and_resubmitted(hand: Hand, bus: Bus) -> None:
    bus.queue("edited", enable_partitioning=True)
    bus.send("edited", orders(1))
    bus.kill("edited", 1)
    hand.open("#/entity/edited/messages/dead-lettered")
    hand.click("order-0")
    hand.click("Edit and resubmit")
    hand.fill("Body", '{"order": 0, "repaired": true}')
    hand.click("Resubmit", within=hand.dialog, exact=True)
    hand.sees_note("Resubmitted to edited.")
    assert hand.clicks == 3
    (message,) = bus.take("edited")
    assert json.loads(str(message)) == {"order": 0, "repaired": True}
    assert message.application_properties == {b"tenant": 0, b"region": b"eu"}, "types and the rest stay"


def test_a_purge_counts_first_and_takes_only_what_the_search_found(hand: Hand, bus: Bus) -> None:
    bus.queue("purged", enable_partitioning=True)
    bus.send("purged", orders(30))
    hand.open("#/entity/purged/messages")
    hand.page.get_by_text("Search and filter").click()
    hand.fill("Subject", "created")
    hand.click("Search", exact=True)
    expect(rows(hand)).to_have_count(15)
    hand.click("Purge all")
    expect(hand.dialog).to_contain_text("15 messages")
    hand.click("Purge 15", within=hand.dialog)
    hand.sees_note("Purged 15.")
    assert bus.counts("purged").active_message_count == 15
    assert {message.subject for message in bus.take("purged", 20)} == {"changed"}


def test_a_schedule_is_cancelled_and_another_moved_in_time(hand: Hand, bus: Bus) -> None:
    bus.queue("scheduled", enable_partitioning=True)
    due = datetime.now(UTC) + timedelta(days=1)
    with bus.client.get_queue_sender("scheduled") as sender:
        for name in ("first", "second"):
            sender.schedule_messages(ServiceBusMessage("later", message_id=name), due)
    hand.open("#/entity/scheduled/messages/scheduled")
    hand.click("first")
    hand.click("Cancel…", within=hand.dialog)
    hand.click("Cancel 1", within=hand.dialog)
    hand.sees_note("Cancelled 1.")
    assert hand.clicks == 3
    expect(rows(hand)).to_have_count(1)
    hand.click("Move in time all")
    hand.fill("New time", "2030-05-06T07:08:09")
    hand.click("Move in time 1", within=hand.dialog)
    hand.sees_note("Moved 1.")
    expect(rows(hand)).to_contain_text("2030-05-06 07:08:09")


def test_a_message_is_scheduled_from_the_form(hand: Hand, bus: Bus) -> None:
    bus.queue("planned")
    hand.open("#/entity/planned")
    hand.click("Send message")
    hand.fill("Body", "later")
    hand.page.get_by_text("More: id, keys").click()
    hand.fill("Deliver at", "2031-01-01T00:00:00")
    hand.click("Schedule", within=hand.dialog)
    hand.sees_note("Scheduled 1 for planned")
    assert bus.counts("planned").scheduled_message_count == 1


def test_deferred_messages_become_active_again(hand: Hand, bus: Bus) -> None:
    bus.queue("deferred", enable_partitioning=True)
    bus.send("deferred", orders(3))
    with bus.client.get_queue_receiver("deferred") as receiver:
        taken = 0
        while taken < 3:
            for message in receiver.receive_messages(max_message_count=3, max_wait_time=10):
                receiver.defer_message(message)
                taken += 1
    hand.open("#/entity/deferred/messages/deferred")
    hand.click("Make active all")
    hand.click("Make active 3", within=hand.dialog)
    hand.sees_note("Made active 3.")
    assert hand.clicks == 2
    assert len(bus.take("deferred")) > 0


def test_a_message_is_deferred_and_its_history_is_shown(hand: Hand, bus: Bus) -> None:
    bus.queue("put-by", enable_partitioning=True)
    hand.open("#/entity/put-by/messages")
    bus.send("put-by", orders(1))
    hand.click("Refresh")
    hand.click("order-0")
    expect(hand.dialog).to_contain_text("keeps no events")
    hand.click("Keep events from now on", within=hand.dialog)
    expect(hand.dialog).to_contain_text("Nothing has been noted of it")
    hand.clicks = 0
    hand.click("Defer…", within=hand.dialog)
    hand.click("Defer 1", within=hand.dialog)
    hand.sees_note("Deferred 1.")
    assert hand.clicks == 2
    assert states(bus, "put-by") == ["DEFERRED"]
    hand.choose("Deferred")
    hand.click("order-0")
    trail = hand.dialog.get_by_role("table", name="History")
    expect(trail).to_contain_text("deferred")
    expect(trail).to_contain_text("by number")
    fact = hand.dialog.locator("dt", has_text="Sequence number").locator("xpath=following-sibling::dd")
    number = int(fact.inner_text().split()[0])
    with bus.client.get_queue_receiver("put-by") as receiver:
        (message,) = receiver.receive_deferred_messages(number)
        assert message.message_id == "order-0"
        receiver.complete_message(message)


def test_all_active_messages_are_deferred(hand: Hand, bus: Bus) -> None:
    bus.queue("all-put-by", enable_partitioning=True)
    bus.send("all-put-by", orders(4))
    hand.open("#/entity/all-put-by/messages")
    hand.click("Defer all")
    hand.click("Defer 4", within=hand.dialog)
    hand.sees_note("Deferred 4.")
    assert states(bus, "all-put-by") == ["DEFERRED"] * 4


def states(bus: Bus, queue: str) -> list[str]:
    with bus.client.get_queue_receiver(queue) as receiver:
        return [message.state.name for message in receiver.peek_messages(20)]


def test_a_subscriptions_dead_letters_go_back_to_it_alone(hand: Hand, bus: Bus) -> None:
    bus.administration.create_topic("spread", enable_partitioning=True)
    for name in ("one", "two"):
        bus.administration.create_subscription("spread", name)
    bus.send("spread", ["a message"], topic=True)
    with bus.client.get_subscription_receiver("spread", "one") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=10)
        receiver.dead_letter_message(message, reason="Refused")
    hand.open("#/entity/spread%2FSubscriptions%2Fone/messages/dead-lettered")
    hand.click("Resubmit all")
    hand.click("Resubmit 1", within=hand.dialog)
    hand.sees_note("Resubmitted 1.")
    told = [bus.administration.get_subscription_runtime_properties("spread", name) for name in ("one", "two")]
    assert [each.active_message_count for each in told] == [1, 1]
    assert told[0].dead_letter_message_count == 0


def test_sessions_are_listed_with_their_holder_and_state(hand: Hand, bus: Bus) -> None:
    bus.queue("carts", requires_session=True, enable_partitioning=True)
    bus.send("carts", [ServiceBusMessage("item", session_id=f"cart-{n % 3}") for n in range(6)])
    with bus.client.get_queue_receiver("carts", session_id="cart-1") as receiver:
        receiver.session.set_state("half full")
        hand.open("#/entity/carts")
        hand.go("Sessions")
        row = hand.page.get_by_role("row", name="cart-1")
        expect(row).to_contain_text("held")
        expect(row).to_contain_text("9 B")
        expect(hand.page.get_by_role("row", name="cart-0")).to_contain_text("nobody")
        assert hand.clicks == 1
        hand.click("State of cart-1")
        expect(hand.dialog.locator("pre")).to_have_text("half full")
        hand.choose("Hex")
        expect(hand.dialog.locator("pre")).to_contain_text("68 61 6c 66")


def test_cursors_show_their_lag_and_are_deleted(hand: Hand, bus: Bus) -> None:
    import time

    import httpx

    from polybus.client.sas import make_token

    bus.queue("read", enable_partitioning=True)
    bus.send("read", orders(7))
    headers = {
        "Authorization": make_token(bus.url, "RootManageSharedAccessKey", "SAS_KEY_VALUE", int(time.time()) + 60)
    }
    made = httpx.put(f"{bus.url}$polybus/entities/read/cursors/lake", headers=headers, json={"start": "earliest"})
    assert made.status_code == 201
    hand.open("#/pipelines")
    expect(hand.page.get_by_role("row", name="lake")).to_contain_text("7 messages")
    hand.go("read", exact=True)
    hand.click("Delete lake")
    hand.fill("Type lake to confirm", "lake")
    hand.click("Delete cursor", within=hand.dialog)
    hand.sees_note("Deleted the cursor lake")
    hand.sees("No cursors")
