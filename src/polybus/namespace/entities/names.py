"""Names of entities, subscriptions and rules, and the addresses and paths in which clients write them.

Names are compared without regard to case and kept as they were first written. Only ASCII letters and digits
and `. - _ ~` are allowed, with `/` between the segments of an entity's path. The cloud's documents say
"letters", which could be read as all of Unicode; but then case folding, normal forms and look-alikes would
decide whether two names are the same, clients disagree on how to encode them in a URL, and every example
and SDK stays within ASCII.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from polybus import limits
from polybus.errors import ArgumentError
from polybus.namespace.entities.rule import DEFAULT_RULE_NAME

SubQueue = Literal["dead-letter", "transfer-dead-letter"]

_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+")
_ONLY_DOTS = re.compile(r"\.+")
_SCHEME_AND_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
_ALLOWED = "letters, numbers, periods (.), hyphens (-), underscores (_) and tildes (~)"


def fold(name: str) -> str:
    """The form of a name by which it is looked up. Valid names are ASCII, so lower case is all it takes."""
    return name.lower()


def check_entity_path(path: str) -> str:
    """The path of a queue or a topic, if one may have it; ArgumentError if not."""
    _check_length(path, limits.ENTITY_PATH_CHARACTERS, "entity path")
    segments = path.split("/")
    for segment in segments:
        _check_segment(segment, path, "Entity segments")
    if _tail_of(segments)[0] is not TargetKind.ENTITY:
        raise ArgumentError(f"The entity path '{path}' is reserved: it addresses something inside an entity.")
    return path


def check_subscription_name(name: str) -> str:
    return _check_name(name, "Subscription names")


def check_rule_name(name: str) -> str:
    """A rule's name; `$Default` is an ordinary one."""
    return name if fold(name) == fold(DEFAULT_RULE_NAME) else _check_name(name, "Rule names")


def _check_name(name: str, what: str) -> str:
    _check_length(name, limits.NAME_CHARACTERS, what.lower().rstrip("s"))
    _check_segment(name, name, what)
    return name


def _check_length(text: str, longest: int, what: str) -> None:
    if not 1 <= len(text) <= longest:
        raise ArgumentError(f"The {what} must have 1 to {longest} characters; it has {len(text)}.")


def _check_segment(segment: str, whole: str, what: str) -> None:
    if not _SEGMENT.fullmatch(segment) or _ONLY_DOTS.fullmatch(segment):
        raise ArgumentError(
            f"{whole!a} contains character(s) that are not allowed by Service Bus. "
            f"{what} can contain only {_ALLOWED}."
        )


@dataclass(frozen=True)
class Address:
    """What a link or a request is directed at, in the client's spelling (docs/protocol/amqp.md#addresses)."""

    entity: str
    subscription: str | None = None
    sub_queue: SubQueue | None = None
    management: bool = False
    special: Literal["$cbs"] | None = None

    @property
    def folded(self) -> tuple[str, str | None, SubQueue | None]:
        """The key by which the messages' place is looked up; the same for every spelling of it."""
        subscription = None if self.subscription is None else fold(self.subscription)
        return fold(self.entity), subscription, self.sub_queue

    @property
    def path(self) -> str:
        """The canonical text of the address."""
        if self.special is not None:
            return self.special
        parts = [self.entity]
        if self.subscription is not None:
            parts += ["Subscriptions", self.subscription]
        parts += _SUB_QUEUE_SEGMENTS[self.sub_queue]
        return "/".join([*parts, "$management"] if self.management else parts)


_SUB_QUEUE_SEGMENTS: dict[SubQueue | None, list[str]] = {
    None: [],
    "dead-letter": ["$DeadLetterQueue"],
    "transfer-dead-letter": ["$Transfer", "$DeadLetterQueue"],
}


def parse_address(text: str) -> Address:
    """The address that a client wrote, with or without an authority; ArgumentError if it names nothing."""
    segments = _decoded(_without_authority(text)).split("/")
    if [fold(segment) for segment in segments] == ["$cbs"]:
        return Address("", special="$cbs")
    return _address_of(segments)


def parse_forward_target(text: str) -> str:
    """The entity path in a ForwardTo: a bare name, or a URL of any host (docs/protocol/atom.md#forwarding)."""
    address = parse_address(text)
    if address != Address(address.entity) or address.special is not None:
        raise ArgumentError(f"{text[:200]!a} is not the path of a queue or a topic to forward to.")
    return address.entity


def _without_authority(text: str) -> str:
    if len(text) > limits.ADDRESS_CHARACTERS:
        raise ArgumentError(f"The address has more than {limits.ADDRESS_CHARACTERS} characters.")
    match = _SCHEME_AND_AUTHORITY.match(text)
    return (text[match.end() :] if match else text).strip("/")


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ArgumentError(f"{text[:200]!a} is not percent-encoded UTF-8.") from None


def _address_of(segments: list[str]) -> Address:
    rest, management = _without_suffix(segments, ["$management"])
    sub_queue: SubQueue | None = None
    rest, found = _without_suffix(rest, ["$transfer", "$deadletterqueue"])
    if found:
        sub_queue = "transfer-dead-letter"
    else:
        rest, found = _without_suffix(rest, ["$deadletterqueue"])
        sub_queue = "dead-letter" if found else None
    subscription: str | None = None
    if len(rest) >= 3 and fold(rest[-2]) == "subscriptions":
        subscription = check_subscription_name(rest[-1])
        rest = rest[:-2]
    return Address(_checked_path(rest), subscription, sub_queue, management)


def _without_suffix(segments: list[str], suffix: list[str]) -> tuple[list[str], bool]:
    tail = segments[-len(suffix) :]
    if len(segments) > len(suffix) and [fold(segment) for segment in tail] == suffix:
        return segments[: -len(suffix)], True
    return segments, False


def _checked_path(segments: list[str]) -> str:
    path = "/".join(segments)
    _check_length(path, limits.ENTITY_PATH_CHARACTERS, "entity path")
    for segment in segments:
        _check_segment(segment, path, "Entity segments")
    return path


class TargetKind(enum.Enum):
    """What an HTTP path can be directed at (docs/protocol/atom.md#paths)."""

    NAMESPACE_INFO = enum.auto()
    QUEUES = enum.auto()
    TOPICS = enum.auto()
    ENTITY = enum.auto()
    SUBSCRIPTIONS = enum.auto()
    SUBSCRIPTION = enum.auto()
    RULES = enum.auto()
    RULE = enum.auto()
    MESSAGES = enum.auto()
    HEAD = enum.auto()
    MESSAGE = enum.auto()


@dataclass(frozen=True)
class HttpTarget:
    """An HTTP path, taken apart. `address` is missing only for what belongs to the namespace as a whole."""

    kind: TargetKind
    address: Address | None = None
    rule: str | None = None
    message_id: str | None = None
    """A message id or a sequence number, as the client wrote it."""
    lock_token: str | None = None


_NAMESPACE_TARGETS = {
    "$namespaceinfo": TargetKind.NAMESPACE_INFO,
    "$resources/queues": TargetKind.QUEUES,
    "$resources/topics": TargetKind.TOPICS,
}
# From the right; None stands for any one segment. The order lets a subscription or a rule be called
# `messages`, and a message id be any word.
_TAILS: tuple[tuple[TargetKind, tuple[str | None, ...]], ...] = (
    (TargetKind.RULE, ("subscriptions", None, "rules", None)),
    (TargetKind.RULES, ("subscriptions", None, "rules")),
    (TargetKind.MESSAGE, ("messages", None, None)),
    (TargetKind.HEAD, ("messages", "head")),
    (TargetKind.SUBSCRIPTION, ("subscriptions", None)),
    (TargetKind.MESSAGES, ("messages",)),
    (TargetKind.SUBSCRIPTIONS, ("subscriptions",)),
)


def parse_http_path(raw_path: str) -> HttpTarget:
    """What the path of a request, still percent-encoded and without its query, is directed at."""
    raw = _without_authority(raw_path)
    segments = [_decoded(segment) for segment in raw.split("/")]
    kind, length = _tail_of(segments)
    if kind is TargetKind.ENTITY:
        # Python encodes the slashes of an entity's path, so the keywords may only show after decoding. The
        # first try keeps a message id together that has a slash of its own.
        segments = "/".join(segments).split("/")
        kind, length = _tail_of(segments)
    whole = _NAMESPACE_TARGETS.get(fold("/".join(segments)))
    if whole is not None:
        return HttpTarget(whole)
    return _target(kind, segments[: len(segments) - length], segments[len(segments) - length :])


def _target(kind: TargetKind, rest: list[str], tail: list[str]) -> HttpTarget:
    base = "/".join(rest).split("/")
    if kind is TargetKind.MESSAGE:
        return HttpTarget(kind, _address_of(base), message_id=tail[1], lock_token=tail[2])
    if kind in (TargetKind.SUBSCRIPTION, TargetKind.RULES):
        return HttpTarget(kind, _address_of([*base, *tail[:2]]))
    if kind is TargetKind.RULE:
        return HttpTarget(kind, _address_of([*base, *tail[:2]]), rule=check_rule_name(tail[3]))
    return HttpTarget(kind, _address_of(base))


def _tail_of(segments: list[str]) -> tuple[TargetKind, int]:
    """What the last segments say, and how many of them say it."""
    for kind, pattern in _TAILS:
        tail = segments[-len(pattern) :]
        if len(segments) > len(pattern) and all(
            word is None or word == fold(segment) for word, segment in zip(pattern, tail, strict=True)
        ):
            return kind, len(pattern)
    return TargetKind.ENTITY, 0
