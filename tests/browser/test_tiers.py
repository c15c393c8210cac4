"""The form that creates entities in a premium namespace, with and without partitions."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from polybus.testing.server import ServerProcess
from tests.browser.kit import Bus, Hand


def create(browser: Browser, bus: Bus, name: str) -> tuple[Hand, bool]:
    """Creates a queue with the form as it opens; whether the box was open to be unticked."""
    hand = Hand(browser.new_page(), bus)
    hand.log_in()
    hand.go("Queues and topics")
    hand.click("Create queue")
    hand.fill("Name", name)
    box = hand.page.get_by_role("checkbox", name="Enable partitioning")
    expect(box).to_be_checked()
    enabled = box.is_enabled()
    sizes = hand.page.get_by_label("Maximum size", exact=True).locator("option")
    expected = ["1 GB", "2 GB", "3 GB", "4 GB", "5 GB", "10 GB", "20 GB", "40 GB", "80 GB"]
    assert sizes.all_text_contents() == expected
    hand.select("Maximum size", "81920")
    hand.click("Create queue", within=hand.dialog)
    hand.heading(name)
    return hand, enabled


def test_a7_a9_in_premium_the_box_has_no_effect_and_sizes_go_to_80(browser: Browser, tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--store", "memory:", "--tier", "premium") as server, Bus(server) as bus:
        hand, enabled = create(browser, bus, "plain")
        assert enabled
        expect(hand.page.locator(".max-size")).to_have_text("80 GB")
        made = bus.administration.get_queue("plain")
        assert (made.enable_partitioning, made.max_size_in_megabytes) == (False, 81920)
        hand.page.close()
        assert hand.complaints == []


def test_a7_a9_with_premium_partitions_the_box_is_on_and_stays(browser: Browser, tmp_path: Path) -> None:
    options = ("--store", "memory:", "--tier", "premium", "--premium-partitions", "2")
    with ServerProcess(tmp_path, *options) as server, Bus(server) as bus:
        hand, enabled = create(browser, bus, "parted")
        assert not enabled
        expect(hand.page.locator(".max-size")).to_have_text("80 GB")
        expect(hand.page.locator(".cell")).to_have_count(2)
        assert bus.administration.get_queue("parted").enable_partitioning is True
        hand.page.close()
        assert hand.complaints == []
