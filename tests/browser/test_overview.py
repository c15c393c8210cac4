"""What the console shows by itself: figures that move, partitions over stores, what is away; faults and the clock."""

from __future__ import annotations

import re

from azure.servicebus import ServiceBusMessage
from playwright.sync_api import expect

from tests.browser.kit import Bus, Hand


def test_figures_move_without_a_click(hand: Hand, bus: Bus) -> None:
    bus.queue("moving", enable_partitioning=True)
    bus.send("moving", ["first"])
    hand.heading("Overview")
    row = hand.page.get_by_role("row", name="moving")
    expect(row.locator("td").nth(1)).to_have_text("1")
    bus.send("moving", (str(each) for each in range(9)))
    expect(row.locator("td").nth(1)).to_have_text("10")
    expect(hand.figure("Incoming")).not_to_have_text(re.compile(r"^\D|^0 "))
    expect(row.locator("polyline")).to_have_count(1)
    node = hand.page.get_by_role("region", name="Node")
    expect(node).to_contain_text("healthy")
    expect(node).to_contain_text("4 of 4")
    expect(node).to_contain_text("% of a core")
    assert hand.clicks == 0


def test_dead_letters_are_pointed_out_and_one_click_away(hand: Hand, bus: Bus) -> None:
    bus.queue("sick")
    bus.send("sick", ["a letter"])
    bus.kill("sick", 1, "Refused")
    hand.sees("has 1 dead letter.")
    hand.go("sick", within=hand.page.get_by_role("region", name="Needs attention"))
    hand.heading("sick")
    expect(hand.page.get_by_role("region", name="Messages")).to_contain_text("Refused")
    assert hand.clicks == 1


def test_partitions_over_stores_and_what_is_away(hand: Hand, bus: Bus) -> None:
    bus.queue("heat", enable_partitioning=True)
    bus.send("heat", [ServiceBusMessage("hot", partition_key="same") for _ in range(8)])
    hand.open("#/entity/heat")
    cells = hand.page.locator(".cell")
    expect(cells).to_have_count(16)
    expect(hand.page.locator(".heat .row")).to_have_count(4)
    expect(hand.page.locator(".cell.h4 b")).to_have_text("8")
    hand.sees("16.00")
    hand.go("Faults and clock")
    hand.click("Take store 2 down")
    hand.sees_note("Store 2 is down.")
    hand.go("Overview", within=hand.page.get_by_role("navigation", name="Main"))
    hand.sees("partitions away; the others go on.")
    hand.go("heat", within=hand.page.get_by_role("region", name="Needs attention"))
    expect(hand.page.locator(".cell.away")).to_have_count(4)
    hand.sees("12 of 16 partitions can be reached.")
    hand.go("Faults and clock")
    hand.click("Heal everything")
    hand.sees_note("Everything works again.")
    hand.open("#/entity/heat")
    expect(hand.page.locator(".cell.away")).to_have_count(0)


def test_the_clock_is_moved(hand: Hand, bus: Bus) -> None:
    from datetime import timedelta

    bus.queue("aging", default_message_time_to_live=timedelta(days=1), dead_lettering_on_message_expiration=True)
    bus.send("aging", ["mortal"])
    hand.go("Faults and clock")
    hand.select("Step, unit", "d")
    hand.fill("Step", "2")
    hand.click("Move the clock forward")
    hand.sees_note("The clock was moved.")
    hand.open("#/entity/aging/messages/dead-lettered")
    expect(hand.page.get_by_role("region", name="Messages")).to_contain_text("TTLExpiredException")


def test_sends_are_throttled_and_allowed_again(hand: Hand, bus: Bus) -> None:
    bus.queue("calm")
    hand.go("Faults and clock")
    hand.select("Queue, topic or subscription", "calm")
    hand.click("Throttle sends")
    hand.sees_note("refused as busy")
    hand.open("#/entity/calm")
    hand.click("Send message")
    hand.click("Send", within=hand.dialog, exact=True)
    expect(hand.dialog.get_by_role("alert")).to_contain_text("throttled")
    hand.page.keyboard.press("Escape")
    hand.go("Faults and clock")
    hand.click("Heal everything")
    hand.sees_note("Everything works again.")


def test_a_bus_that_restarts_is_found_again(hand: Hand, bus: Bus) -> None:
    bus.queue("lasting")
    bus.send("lasting", ["kept"])
    expect(hand.page.get_by_role("row", name="lasting")).to_be_visible()
    bus.server.stop()
    hand.sees("The bus does not answer.")
    bus.server.start()
    expect(hand.page.get_by_text("The bus does not answer.")).to_have_count(0)
    expect(hand.page.get_by_role("row", name="lasting")).to_be_visible()
