"""For everybody: by keyboard alone, for screen readers, in light and dark, on a wide screen and on a phone."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.browser.kit import KEY, Bus, Hand

PAGES = (
    "#/",
    "#/entities",
    "#/entity/reached",
    "#/entity/reached/messages/dead-lettered",
    "#/entity/reached/access",
    "#/entity/reached/properties",
    "#/entity/wide/subscriptions",
    "#/entity/wide%2FSubscriptions%2Fall/rules",
    "#/pipelines",
    "#/stores",
    "#/faults",
)


@pytest.fixture(scope="module")
def filled(bus: Bus) -> Bus:
    bus.queue("reached", enable_partitioning=True)
    bus.send("reached", [f"letter {each}" for each in range(5)])
    bus.kill("reached", 2)
    bus.administration.create_topic("wide")
    bus.administration.create_subscription("wide", "all")
    return bus


def violations(hand: Hand) -> list[str]:
    found = Axe().run(hand.page, options={"resultTypes": ["violations"]}).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:160]}" for each in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_a_rule_of_accessibility(hand: Hand, filled: Bus, scheme: str) -> None:
    hand.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    broken = {}
    for address in PAGES:
        hand.open(address)
        expect(hand.page.get_by_role("heading", level=1)).to_be_visible()
        expect(hand.page.get_by_text("Listening to the bus…")).to_have_count(0)
        if found := violations(hand):
            broken[address] = found
    hand.open("#/entity/reached/messages/dead-lettered")
    hand.page.get_by_role("region", name="Messages").get_by_role("button").first.click()
    expect(hand.dialog).to_be_visible()
    if found := violations(hand):
        broken["a message"] = found
    assert not broken, "\n".join(f"{page}: {each}" for page, found in broken.items() for each in found)


def test_the_log_in_page_breaks_no_rule_of_accessibility(stranger: Hand) -> None:
    stranger.open()
    expect(stranger.page.get_by_role("button", name="Log in")).to_be_visible()
    assert violations(stranger) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_the_screen(hand: Hand, filled: Bus, width: int) -> None:
    hand.page.set_viewport_size({"width": width, "height": 844})
    for address in PAGES:
        hand.open(address)
        expect(hand.page.get_by_role("heading", level=1)).to_be_visible()
        expect(hand.page.get_by_text("Listening to the bus…")).to_have_count(0)
        assert hand.page.evaluate("document.documentElement.scrollWidth") <= width, address


def test_on_a_phone_the_menu_opens_and_a_message_is_sent(hand: Hand, filled: Bus) -> None:
    hand.page.set_viewport_size({"width": 390, "height": 844})
    hand.open()
    hand.click("Menu")
    hand.go("Queues and topics")
    hand.go("reached")
    hand.click("Send message")
    hand.fill("Body", "from a phone")
    hand.click("Send", within=hand.dialog, exact=True)
    hand.sees_note("Sent 1 to reached")


def test_everything_is_done_by_keyboard(stranger: Hand, bus: Bus) -> None:
    """From the log-in to a queue that is created, without a mouse."""
    keyboard = stranger.page.keyboard
    stranger.open()
    stranger.page.get_by_label("Key", exact=True).last.focus()
    keyboard.type(KEY[1])
    keyboard.press("Enter")
    stranger.heading("Overview")
    keyboard.press("Tab")
    expect(stranger.page.get_by_text("Skip to content")).to_be_focused()
    for _ in range(20):
        keyboard.press("Tab")
        if stranger.page.evaluate("document.activeElement.textContent").strip() == "Queues and topics":
            break
    keyboard.press("Enter")
    stranger.heading("Queues and topics")
    stranger.page.get_by_role("button", name="Create queue").focus()
    keyboard.press("Enter")
    expect(stranger.page.get_by_label("Name", exact=True)).to_be_focused()
    keyboard.type("typed")
    keyboard.press("Enter")
    stranger.heading("typed")
    stranger.page.get_by_role("button", name="Send message").focus()
    keyboard.press("Enter")
    expect(stranger.dialog.get_by_label("Body")).to_be_focused()
    keyboard.press("Escape")
    expect(stranger.dialog).to_have_count(0)
    expect(stranger.page.get_by_role("button", name="Send message")).to_be_focused()


def test_the_colours_that_were_chosen_stay(hand: Hand) -> None:
    hand.click("Use dark colours")
    assert hand.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    hand.page.reload()
    hand.heading("Overview")
    assert hand.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    expect(hand.page.get_by_role("button", name="Use light colours").first).to_be_visible()


def test_it_works_without_the_internet(browser: Browser, filled: Bus) -> None:
    """Whoever is asked that is not the bus fails the test; here it could not even be reached."""
    context = browser.new_context()
    page = context.new_page()
    page.route(lambda url: not url.startswith((filled.url, "blob:")), lambda route: route.abort())
    hand = Hand(page, filled)
    hand.log_in()
    hand.go("Queues and topics")
    hand.sees("reached")
    context.close()
    assert hand.complaints == []
