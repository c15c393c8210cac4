"""The envelopes of the management API: entries, feeds, the feed that means "not there", error bodies.

Ids are URLs in which the JavaScript SDK looks for names, between `/Subscriptions/` and `/Rules/` in just that
spelling; the others read titles. A feed has the link `self`, and `next` only if there is more: the Python SDK follows
the second of exactly two links (docs/protocol/atom.md#envelope, docs/protocol/atom.md#lists,
docs/protocol/atom.md#not-found, docs/protocol/errors.md#http).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from polybus.errors import ArgumentError
from polybus.gateway.atom.render import (
    AtomContext,
    Moment,
    RuntimeInfo,
    description_xml,
    namespace_xml,
)
from polybus.gateway.atom.rule_render import rule_xml
from polybus.gateway.atom.xml import escape, escape_attribute
from polybus.gateway.durations import seconds_text
from polybus.namespace.entities.description import (
    Description,
    EntityDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.rule import RuleDescription

ATOM = "http://www.w3.org/2005/Atom"
ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE = "application/atom+xml;type=feed;charset=utf-8"
ERROR_TYPE = "application/xml; charset=utf-8"
NOT_FOUND_TITLE = "Publicly Listed Services"
"""The Go SDK takes a feed for "not found" only under this title."""
PAGE = 100
_LARGEST_SKIP = 2**31 - 1


@dataclass(frozen=True)
class _FeedEntry:
    """What the entries of all kinds have in common."""

    path: str
    title: str
    published_ms: int | None
    updated_ms: int
    content: str
    has_author: bool


def entity_entry(description: EntityDescription, info: RuntimeInfo, context: AtomContext, moment: Moment) -> bytes:
    """The document that answers a create, an update or a get of a queue or a topic."""
    return _document(_entry_of(description, info, context, moment), context)


def subscription_entry(
    description: SubscriptionDescription, info: RuntimeInfo, context: AtomContext, moment: Moment
) -> bytes:
    return _document(_entry_of(description, info, context, moment), context)


def rule_entry(rule: RuleDescription, topic: str, subscription: str, context: AtomContext, moment: Moment) -> bytes:
    return _document(_rule_entry(rule, topic, subscription, moment), context)


def namespace_entry(context: AtomContext, created_at_ms: int, modified_at_ms: int) -> bytes:
    """The document that answers `$namespaceinfo`."""
    content = namespace_xml(context, created_at_ms, modified_at_ms)
    entry = _FeedEntry("$namespaceinfo", context.namespace, None, context.now_ms, content, has_author=True)
    return _document(entry, context)


def entity_feed(
    entities: Sequence[tuple[EntityDescription, RuntimeInfo]],
    context: AtomContext,
    kind: type[EntityDescription],
    page: FeedPage,
) -> bytes:
    """One page of the queues or of the topics."""
    title = "Topics" if kind is TopicDescription else "Queues"
    entries = [_entry_of(entity, info, context, Moment.READ) for entity, info in entities]
    items = [_item(entry, f"../{entry.title}", context, page) for entry in entries]
    return _feed(title, items, context, page)


def subscription_feed(
    subscriptions: Sequence[tuple[SubscriptionDescription, RuntimeInfo]], context: AtomContext, page: FeedPage
) -> bytes:
    entries = [_entry_of(subscription, info, context, Moment.READ) for subscription, info in subscriptions]
    items = [_item(entry, f"subscriptions/{entry.title}", context, page) for entry in entries]
    return _feed("Subscriptions", items, context, page)


def rule_feed(
    rules: Sequence[RuleDescription], topic: str, subscription: str, context: AtomContext, page: FeedPage
) -> bytes:
    entries = [_rule_entry(rule, topic, subscription, Moment.READ) for rule in rules]
    items = [_item(entry, f"rules/{entry.title}", context, page) for entry in entries]
    return _feed("Rules", items, context, page)


def not_found_feed(context: AtomContext, feed_id: str) -> bytes:
    """The feed without entries that a get of a missing queue or topic is answered with, under status 200."""
    return (
        f'<feed xmlns="{ATOM}"><title type="text">{NOT_FOUND_TITLE}</title>'
        '<subtitle type="text">This is the list of publicly-listed services currently available.</subtitle>'
        f"<id>uuid:{escape(feed_id)};id=1</id><updated>{seconds_text(context.now_ms)}</updated>"
        "<generator>Service Bus 1.1</generator></feed>"
    ).encode()


@dataclass(frozen=True)
class FeedPage:
    """Which part of a list is answered: its path in the URL, from where, how many, and whether more follows."""

    path: str
    skip: int = 0
    top: int = PAGE
    more: bool = False
    filter: str = ""
    """The `$filter` that the next page has, too."""


def parse_page(skip: str | None, top: str | None) -> tuple[int, int]:
    """The two numbers of a list request, as they stand in its query; a page never has more than 100."""
    return _page_number("$skip", skip, 0), min(_page_number("$top", top, PAGE), PAGE)


def _page_number(name: str, text: str | None, default: int) -> int:
    if text is None or text == "":
        return default
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
        raise ArgumentError(f"The value {text[:40]!a} of the parameter {name} is not a valid integer.")
    if int(text) < 0:
        raise ArgumentError(f"The value of the parameter {name} must be non-negative.")
    return min(int(text), _LARGEST_SKIP)


def error_detail(sub_code: int | None, message: str, *, tracking_id: str, system_tracker: str, now_ms: int) -> str:
    """The text of an error, in which .NET and JavaScript look for `SubCode=`."""
    code = "" if sub_code is None else f"SubCode={sub_code}. "
    stop = "" if message.endswith((".", "!", "?")) else "."
    moment = seconds_text(now_ms).rstrip("Z")
    tracking = f"TrackingId:{tracking_id}, SystemTracker:{system_tracker}, Timestamp:{moment}"
    return f"{code}{message}{stop} {tracking}"


def error_document(status: int, detail: str) -> bytes:
    """The body of a refusal; its `Code` is the HTTP status."""
    return f"<Error><Code>{status}</Code><Detail>{escape(detail)}</Detail></Error>".encode()


def _entry_of(description: Description, info: RuntimeInfo, context: AtomContext, moment: Moment) -> _FeedEntry:
    content = description_xml(description, info, context, moment)
    published = None if moment is Moment.UPDATED else description.created_at_ms
    updated = description.updated_at_ms
    if isinstance(description, SubscriptionDescription):
        path = f"{description.topic}/Subscriptions/{description.name}"
        return _FeedEntry(path, description.name, published, updated, content, has_author=False)
    return _FeedEntry(description.path, description.path, published, updated, content, has_author=True)


def _rule_entry(rule: RuleDescription, topic: str, subscription: str, moment: Moment) -> _FeedEntry:
    published = None if moment is Moment.UPDATED else rule.created_at_ms
    path = f"{topic}/Subscriptions/{subscription}/Rules/{rule.name}"
    return _FeedEntry(path, rule.name, published, rule.created_at_ms, rule_xml(rule), has_author=False)


def _document(entry: _FeedEntry, context: AtomContext) -> bytes:
    url = _url(context.base_url, entry.path, context.query)
    return f'<entry xmlns="{ATOM}">{_inside(entry, url, url, context)}</entry>'.encode()


def _item(entry: _FeedEntry, href: str, context: AtomContext, page: FeedPage) -> str:
    query = f"api-version={context.api_version}" if context.api_version else ""
    url = _url(context.base_url, entry.path, query)
    link = f"{href}?{query}" if query else href
    base = escape_attribute(_url(context.base_url, page.path, context.query))
    return f'<entry xml:base="{base}">{_inside(entry, url, link, context)}</entry>'


def _inside(entry: _FeedEntry, url: str, href: str, context: AtomContext) -> str:
    published = ""
    if entry.published_ms is not None:
        published = f"<published>{seconds_text(entry.published_ms)}</published>"
    author = f"<author><name>{escape(context.namespace)}</name></author>" if entry.has_author else ""
    return (
        f'<id>{escape(url)}</id><title type="text">{escape(entry.title)}</title>{published}'
        f"<updated>{seconds_text(entry.updated_ms)}</updated>{author}"
        f'<link rel="self" href="{escape_attribute(href)}"/>'
        f'<content type="application/xml">{entry.content}</content>'
    )


def _feed(title: str, items: list[str], context: AtomContext, page: FeedPage) -> bytes:
    url = _url(context.base_url, page.path, context.query)
    links = f'<link rel="self" href="{escape_attribute(url)}"/>'
    if page.more:
        links += f'<link rel="next" href="{escape_attribute(_next_url(context, page))}"/>'
    return (
        f'<feed xmlns="{ATOM}"><title type="text">{title}</title><id>{escape(url)}</id>'
        f"<updated>{seconds_text(context.now_ms)}</updated>{links}{''.join(items)}</feed>"
    ).encode()


def _next_url(context: AtomContext, page: FeedPage) -> str:
    query = f"%24skip={page.skip + page.top}&%24top={page.top}"
    if page.filter:
        query += f"&%24filter={quote(page.filter, safe='')}"
    if context.api_version:
        query += f"&api-version={context.api_version}"
    return _url(context.base_url, page.path, query)


def _url(base_url: str, path: str, query: str) -> str:
    return f"{base_url}/{path.strip('/')}" + (f"?{query}" if query else "")
