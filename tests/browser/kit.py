"""A user's hand on the console, which counts its clicks; and the bus behind it, seen through the official SDK."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.management import ServiceBusAdministrationClient
from playwright.sync_api import Locator, Page, expect

from polybus.testing.server import ServerProcess

KEY = ("RootManageSharedAccessKey", "SAS_KEY_VALUE")
WAIT_MS = 20_000
expect.set_options(timeout=WAIT_MS)


class Bus:
    """The bus, and what tests put into it and take out of it behind the console's back."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.url = f"{server.http_url}/"

    def __enter__(self) -> Bus:
        self.administration = ServiceBusAdministrationClient.from_connection_string(
            self.server.admin_connection_string, connection_verify=str(self.server.authority)
        )
        self.client = ServiceBusClient.from_connection_string(self.server.connection_string)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.administration.close()

    def queue(self, name: str, **options: Any) -> str:
        self.administration.create_queue(name, **options)
        return name

    def send(self, to: str, messages: Iterable[ServiceBusMessage | str], topic: bool = False) -> None:
        sender = self.client.get_topic_sender(to) if topic else self.client.get_queue_sender(to)
        with sender:
            for message in messages:
                sender.send_messages(
                    message if isinstance(message, ServiceBusMessage) else ServiceBusMessage(message)
                )

    def take(self, queue: str, most: int = 10, **options: Any) -> list[ServiceBusReceivedMessage]:
        """Receives and removes what is there now."""
        options.setdefault("receive_mode", "receiveanddelete")
        with self.client.get_queue_receiver(queue, **options) as receiver:
            return receiver.receive_messages(max_message_count=most, max_wait_time=5)

    def kill(self, queue: str, number: int, reason: str = "Broken", description: str = "It is broken.") -> None:
        """Dead-letters what is at the head of a queue."""
        with self.client.get_queue_receiver(queue) as receiver:
            while number:
                messages = receiver.receive_messages(max_message_count=number, max_wait_time=10)
                assert messages, "there is nothing to dead-letter"
                for message in messages:
                    receiver.dead_letter_message(message, reason=reason, error_description=description)
                number -= len(messages)

    def counts(self, queue: str) -> Any:
        return self.administration.get_queue_runtime_properties(queue)


class Hand:
    """Clicks, types and looks, and counts the clicks."""

    def __init__(self, page: Page, bus: Bus) -> None:
        self.page = page
        self.bus = bus
        self.clicks = 0
        self.complaints: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._watch)

    def _hear(self, message: Any) -> None:
        # The browser notes each refused request; that is what some tests are about. Whatever else goes wrong counts.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def _watch(self, request: Any) -> None:
        """No address ever has a secret in it, and nobody but the bus is asked for anything."""
        if not request.url.startswith((self.bus.url, "blob:")) or re.search(
            r"SAS_KEY_VALUE|sig=|sig%3D", request.url
        ):
            self.complaints.append(f"asked {request.url}")

    def open(self, address: str = "") -> None:
        self.page.goto(f"{self.bus.url}{address}")

    def log_in(self, name: str = KEY[0], key: str = KEY[1], entity: str = "") -> None:
        self.open()
        self.fill("Key name", name)
        self.fill("Key", key)
        if entity:
            self.page.get_by_text("The key of one queue or topic").click()
            self.fill("Queue or topic", entity)
        self.click("Log in")
        expect(self.page.get_by_role("navigation", name="Main")).to_be_visible()

    # Doing

    def click(self, name: str, role: Any = "button", within: Locator | None = None, exact: bool = False) -> None:
        found = (within or self.page).get_by_role(role, name=name, exact=exact)
        found.first.click()
        self.clicks += 1

    def go(self, name: str, within: Locator | None = None, exact: bool = False) -> None:
        self.click(name, "link", within, exact)

    def choose(self, name: str) -> None:
        """One of a row of radio buttons; its words are its label's."""
        self.page.locator(".choice label").filter(has_text=name).first.click()
        self.clicks += 1

    def fill(self, label: str, text: str, within: Locator | None = None) -> None:
        (within or self.page).get_by_label(label, exact=True).last.fill(text)

    def select(self, label: str, value: str) -> None:
        self.page.get_by_label(label, exact=True).last.select_option(value)
        self.clicks += 2  # one opens it, one chooses

    def tick(self, label: str) -> None:
        self.page.get_by_role("checkbox", name=label).click()
        self.clicks += 1

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    # Looking

    def sees(self, text: str) -> None:
        expect(self.page.get_by_text(text).first).to_be_visible()

    def sees_note(self, text: str) -> None:
        expect(self.page.locator(".note", has_text=text).last).to_be_visible()  # an earlier one may still be there

    def sees_no(self, text: str, role: Any = "button") -> None:
        expect(self.page.get_by_role(role, name=text)).to_have_count(0)

    def heading(self, text: str) -> None:
        expect(self.page.get_by_role("heading", level=1, name=text)).to_be_visible()

    def figure(self, label: str) -> Locator:
        return self.page.locator(".figure", has=self.page.get_by_text(label, exact=True)).locator(".value")


def body_json(message: ServiceBusReceivedMessage) -> Any:
    return json.loads(str(message))
