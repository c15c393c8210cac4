"""Our documents on the wire: order, attributes, prefixes, links, texts, one test for each fact that breaks an SDK."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import ArgumentError
from polybus.gateway.atom import documents as atom
from polybus.gateway.atom.documents import AtomContext, FeedPage, Moment, RuntimeInfo
from polybus.namespace.entities.description import (
    AccessRight,
    AuthorizationRule,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.names import parse_forward_target
from polybus.namespace.entities.rule import (
    DEFAULT_RULE,
    CorrelationFilterDescription,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
)
from polybus.namespace.entities.tiers import PREMIUM, STANDARD
from polybus.namespace.entities.typed_value import TypedValue
from tests.unit.namespace import description_kit as kit

NOW_MS = 1_618_852_986_253
SB = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
ATOM = "{http://www.w3.org/2005/Atom}"
COUNTS = "{http://schemas.microsoft.com/netservices/2011/06/servicebus}"
CONTEXT = AtomContext(
    base_url="https://localhost:5300",
    query="api-version=2021-05",
    namespace="sbemulatorns",
    tier=STANDARD,
    api_version="2021-05",
    now_ms=NOW_MS,
)
OLD = replace(CONTEXT, api_version="2017-04", query="api-version=2017-04")
INFO = RuntimeInfo(active_count=3, accessed_at_ms=NOW_MS)
QUEUE = QueueDescription(path="a/q", created_at_ms=NOW_MS, updated_at_ms=NOW_MS)
TOPIC = TopicDescription(path="t", created_at_ms=NOW_MS, updated_at_ms=NOW_MS)
SUBSCRIPTION = SubscriptionDescription(topic="t", name="s", created_at_ms=NOW_MS, updated_at_ms=NOW_MS)
RULE = RuleDescription(
    name="r",
    filter=CorrelationFilterDescription(
        label="l", properties=(("k", TypedValue("duration", "PT1S")), ("n", TypedValue("long", "1")))
    ),
    action=SqlActionDescription(expression="SET a = 1"),
    created_at_ms=NOW_MS,
)


def described(document: bytes) -> ElementTree.Element:
    content = ElementTree.fromstring(document).find(f"{ATOM}content")
    assert content is not None
    return content[0]


def names(element: ElementTree.Element) -> list[str]:
    return [child.tag.removeprefix(SB) for child in element]


def test_a_new_queue_is_answered_to_the_letter() -> None:
    """The body that the cloud sent in a recorded session, with our names and without its version's differences."""
    assert atom.entity_entry(replace(QUEUE, path="dfjfj"), INFO, OLD, Moment.CREATED).decode() == (
        '<entry xmlns="http://www.w3.org/2005/Atom"><id>https://localhost:5300/dfjfj?api-version=2017-04</id>'
        '<title type="text">dfjfj</title><published>2021-04-19T17:23:06Z</published>'
        "<updated>2021-04-19T17:23:06Z</updated><author><name>sbemulatorns</name></author>"
        '<link rel="self" href="https://localhost:5300/dfjfj?api-version=2017-04"/>'
        '<content type="application/xml"><QueueDescription '
        'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
        'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><LockDuration>PT1M</LockDuration>'
        "<MaxSizeInMegabytes>1024</MaxSizeInMegabytes><RequiresDuplicateDetection>false</RequiresDuplicateDetection>"
        "<RequiresSession>false</RequiresSession>"
        "<DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>"
        "<DeadLetteringOnMessageExpiration>false</DeadLetteringOnMessageExpiration>"
        "<DuplicateDetectionHistoryTimeWindow>PT10M</DuplicateDetectionHistoryTimeWindow>"
        "<MaxDeliveryCount>10</MaxDeliveryCount><EnableBatchedOperations>true</EnableBatchedOperations>"
        "<SizeInBytes>0</SizeInBytes><MessageCount>3</MessageCount>"
        "<IsAnonymousAccessible>false</IsAnonymousAccessible><AuthorizationRules></AuthorizationRules>"
        "<Status>Active</Status><CreatedAt>2021-04-19T17:23:06.253Z</CreatedAt>"
        "<UpdatedAt>2021-04-19T17:23:06.253Z</UpdatedAt><SupportOrdering>true</SupportOrdering>"
        "<AutoDeleteOnIdle>P10675199DT2H48M5.4775807S</AutoDeleteOnIdle>"
        "<EnablePartitioning>false</EnablePartitioning>"
        "<EntityAvailabilityStatus>Available</EntityAvailabilityStatus><EnableExpress>false</EnableExpress>"
        "</QueueDescription></content></entry>"
    )


QUEUE_ORDER = """LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
    DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations
    SizeInBytes MessageCount IsAnonymousAccessible AuthorizationRules Status CreatedAt UpdatedAt AccessedAt
    SupportOrdering CountDetails AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus EnableExpress
    MaxMessageSizeInKilobytes"""
TOPIC_ORDER = """DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection
    DuplicateDetectionHistoryTimeWindow EnableBatchedOperations SizeInBytes FilteringMessagesBeforePublishing
    IsAnonymousAccessible AuthorizationRules Status CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails
    SubscriptionCount AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus EnableSubscriptionPartitioning
    EnableExpress MaxMessageSizeInKilobytes"""
SUBSCRIPTION_ORDER = """LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
    DeadLetteringOnFilterEvaluationExceptions MessageCount MaxDeliveryCount EnableBatchedOperations Status CreatedAt
    UpdatedAt AccessedAt CountDetails AutoDeleteOnIdle EntityAvailabilityStatus IsClientAffine"""


def test_elements_come_in_the_clouds_order() -> None:
    assert names(described(atom.entity_entry(QUEUE, INFO, CONTEXT, Moment.READ))) == QUEUE_ORDER.split()
    assert names(described(atom.entity_entry(TOPIC, INFO, CONTEXT, Moment.READ))) == TOPIC_ORDER.split()
    read = atom.subscription_entry(SUBSCRIPTION, INFO, CONTEXT, Moment.READ)
    assert names(described(read)) == SUBSCRIPTION_ORDER.split()


def test_forwarding_and_metadata_have_their_places() -> None:
    queue = replace(QUEUE, forward_to="x", user_metadata="m", forward_dead_lettered_messages_to="sb://h/y")
    element = described(atom.entity_entry(queue, INFO, CONTEXT, Moment.CREATED))
    last = names(element)[-5:]
    assert last == [
        "EnableExpress",
        "ForwardTo",
        "UserMetadata",
        "ForwardDeadLetteredMessagesTo",
        "MaxMessageSizeInKilobytes",
    ]
    assert element.findtext(f"{SB}ForwardTo") == "sb://localhost:5300/x"
    assert element.findtext(f"{SB}ForwardDeadLetteredMessagesTo") == "sb://h/y"
    one = replace(SUBSCRIPTION, forward_to="x", forward_dead_lettered_messages_to="y")
    order = names(described(atom.subscription_entry(one, INFO, CONTEXT, Moment.READ)))
    assert order.index("ForwardTo") == order.index("Status") + 1 == order.index("CreatedAt") - 1
    assert order.index("ForwardDeadLetteredMessagesTo") == order.index("CountDetails") + 1


@pytest.mark.parametrize("moment", [Moment.CREATED, Moment.UPDATED])
def test_what_only_a_get_has(moment: Moment) -> None:
    for one in (QUEUE, TOPIC):
        found = names(described(atom.entity_entry(one, INFO, CONTEXT, moment)))
        assert not {"AccessedAt", "CountDetails", "SubscriptionCount"} & set(found)
    assert "CountDetails" not in names(described(atom.subscription_entry(SUBSCRIPTION, INFO, CONTEXT, moment)))


def test_times_of_access() -> None:
    never = RuntimeInfo()
    read = described(atom.entity_entry(QUEUE, never, CONTEXT, Moment.READ))
    assert read.findtext(f"{SB}AccessedAt") == "0001-01-01T00:00:00Z"
    new = described(atom.subscription_entry(SUBSCRIPTION, never, CONTEXT, Moment.CREATED))
    assert new.findtext(f"{SB}AccessedAt") == "0001-01-01T00:00:00"
    later = described(atom.subscription_entry(SUBSCRIPTION, never, CONTEXT, Moment.READ))
    assert later.findtext(f"{SB}AccessedAt") == "2021-04-19T17:23:06.253Z"


def test_published_is_missing_in_updates_and_authors_in_subscriptions() -> None:
    assert b"<published>" not in atom.entity_entry(QUEUE, INFO, CONTEXT, Moment.UPDATED)
    assert b"<published>" not in atom.namespace_entry(CONTEXT, NOW_MS, NOW_MS)
    for document in (
        atom.subscription_entry(SUBSCRIPTION, INFO, CONTEXT, Moment.READ),
        atom.rule_entry(RULE, "t", "s", CONTEXT, Moment.READ),
    ):
        assert b"<author>" not in document
        assert b"<published>" in document


def everything() -> list[bytes]:
    key = AuthorizationRule(key_name="k", rights=tuple(AccessRight), primary_key="a", secondary_key="b")
    queue = replace(QUEUE, authorization_rules=(key,), forward_to="x", user_metadata="m", enable_partitioning=True)
    page = FeedPage("$Resources/queues", 0, 1, more=True)
    return [
        atom.entity_entry(queue, INFO, CONTEXT, Moment.READ),
        atom.entity_entry(replace(TOPIC, authorization_rules=(key,)), INFO, CONTEXT, Moment.READ),
        atom.subscription_entry(SUBSCRIPTION, INFO, CONTEXT, Moment.READ),
        atom.rule_entry(RULE, "t", "s", CONTEXT, Moment.READ),
        atom.rule_entry(DEFAULT_RULE, "t", "s", CONTEXT, Moment.READ),
        atom.namespace_entry(CONTEXT, NOW_MS, NOW_MS),
        atom.entity_feed([(queue, INFO)], CONTEXT, QueueDescription, page),
    ]


MAY_HAVE_ATTRIBUTES = {
    "entry",
    "feed",
    "title",
    "link",
    "content",
    "CountDetails",
    "AuthorizationRule",
    "Filter",
    "Action",
    "Value",
}


@pytest.mark.parametrize("document", everything())
def test_no_attribute_where_the_javascript_sdk_cannot_stand_one(document: bytes) -> None:
    for tag, attributes in re.findall(r"<([A-Za-z][\w:]*)( [^>]*?)?/?>", document.decode()):
        if attributes:
            assert tag in MAY_HAVE_ATTRIBUTES or tag.endswith(("Description", "NamespaceInfo"))


def test_count_details_have_one_attribute_and_its_prefix() -> None:
    text = atom.entity_entry(QUEUE, INFO, CONTEXT, Moment.READ).decode()
    (attributes,) = re.findall(r"<CountDetails([^>]*)>", text)
    assert attributes == ' xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus"'
    (inside,) = re.findall(r"<CountDetails[^>]*>(.*)</CountDetails>", text)
    assert re.findall(r"<(\w+:\w+)>", inside) == [
        "d2p1:ActiveMessageCount",
        "d2p1:DeadLetterMessageCount",
        "d2p1:ScheduledMessageCount",
        "d2p1:TransferMessageCount",
        "d2p1:TransferDeadLetterMessageCount",
    ]


def test_counts_fit_into_32_bits() -> None:
    info = RuntimeInfo(active_count=2**40, size_bytes=2**40)
    element = described(atom.entity_entry(QUEUE, info, CONTEXT, Moment.READ))
    assert element.findtext(f"{SB}MessageCount") == "2147483647"
    assert element.findtext(f"{SB}CountDetails/{COUNTS}ActiveMessageCount") == "2147483647"
    assert element.findtext(f"{SB}SizeInBytes") == str(2**40)


def test_ids_are_where_javascript_looks_for_names() -> None:
    one = atom.subscription_entry(SUBSCRIPTION, INFO, CONTEXT, Moment.READ)
    assert b"<id>https://localhost:5300/t/Subscriptions/s?api-version=2021-05</id>" in one
    rule = atom.rule_entry(RULE, "t", "s", CONTEXT, Moment.READ)
    assert b"<id>https://localhost:5300/t/Subscriptions/s/Rules/r?api-version=2021-05</id>" in rule
    assert b"<id>https://localhost:5300/a/q?api-version=2021-05</id>" in atom.entity_entry(
        QUEUE, INFO, CONTEXT, Moment.READ
    )


def test_typed_values_have_prefixes_of_four_letters() -> None:
    text = atom.rule_entry(RULE, "t", "s", CONTEXT, Moment.READ).decode()
    assert (
        '<Value i:type="d6p1:duration" xmlns:d6p1="http://schemas.microsoft.com/2003/10/Serialization/">PT1S</Value>'
    ) in text
    assert '<Value i:type="d6p1:long" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">1</Value>' in text
    assert '<Filter i:type="CorrelationFilter"><Label>l</Label><Properties>' in text
    assert "SqlExpression" not in text.split("</Filter>")[0]
    assert '<Action i:type="SqlRuleAction"><SqlExpression>SET a = 1</SqlExpression>' in text
    assert "<CompatibilityLevel>20</CompatibilityLevel>" in text


def test_empty_lists_of_values_are_left_out_and_an_action_is_always_there() -> None:
    text = atom.rule_entry(DEFAULT_RULE, "t", "s", CONTEXT, Moment.READ).decode()
    assert "Parameters" not in text
    assert '<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression>' in text
    assert '<Action i:type="EmptyRuleAction"></Action>' in text
    assert "<Name>$Default</Name>" in text


def links(document: bytes) -> list[tuple[str | None, str | None]]:
    return [(link.get("rel"), link.get("href")) for link in ElementTree.fromstring(document).findall(f"{ATOM}link")]


def test_a_feed_has_two_links_only_if_there_is_more() -> None:
    entities = [(QUEUE, INFO)]
    context = replace(CONTEXT, query="%24skip=0&%24top=1&api-version=2021-05")
    last = atom.entity_feed(entities, context, QueueDescription, FeedPage("/$Resources/queues", 0, 1))
    base = "https://localhost:5300/$Resources/queues"
    assert links(last) == [("self", f"{base}?%24skip=0&%24top=1&api-version=2021-05")]
    more = atom.entity_feed(entities, context, QueueDescription, FeedPage("/$Resources/queues", 3, 2, more=True))
    assert links(more)[1] == ("next", f"{base}?%24skip=5&%24top=2&api-version=2021-05")
    assert len(links(more)) == 2


def test_titles_and_entries_of_feeds() -> None:
    page = FeedPage("t/subscriptions")
    feeds = [
        (atom.entity_feed([(QUEUE, INFO)], CONTEXT, QueueDescription, page), "Queues", "../a/q?api-version=2021-05"),
        (atom.entity_feed([(TOPIC, INFO)], CONTEXT, TopicDescription, page), "Topics", "../t?api-version=2021-05"),
        (
            atom.subscription_feed([(SUBSCRIPTION, INFO)], CONTEXT, page),
            "Subscriptions",
            "subscriptions/s?api-version=2021-05",
        ),
        (atom.rule_feed([RULE], "t", "s", CONTEXT, page), "Rules", "rules/r?api-version=2021-05"),
    ]
    for document, title, href in feeds:
        feed = ElementTree.fromstring(document)
        assert feed.findtext(f"{ATOM}title") == title
        entry = feed.find(f"{ATOM}entry")
        assert entry is not None
        assert entry.get("{http://www.w3.org/XML/1998/namespace}base") == (
            "https://localhost:5300/t/subscriptions?api-version=2021-05"
        )
        link = entry.find(f"{ATOM}link")
        assert link is not None
        assert link.get("href") == href


def test_an_empty_feed() -> None:
    feed = ElementTree.fromstring(atom.entity_feed([], CONTEXT, QueueDescription, FeedPage("$Resources/queues")))
    assert [child.tag for child in feed] == [f"{ATOM}{name}" for name in ("title", "id", "updated", "link")]


def test_not_found_is_a_feed_under_the_title_that_go_knows() -> None:
    feed = ElementTree.fromstring(atom.not_found_feed(CONTEXT, "2b0c"))
    assert feed.findtext(f"{ATOM}title") == "Publicly Listed Services"
    assert feed.findtext(f"{ATOM}generator") == "Service Bus 1.1"
    assert feed.findtext(f"{ATOM}id") == "uuid:2b0c;id=1"
    assert feed.find(f"{ATOM}entry") is None
    assert feed.find(f"{ATOM}link") is None


def test_errors_say_their_sub_code() -> None:
    detail = atom.error_detail(
        40000,
        "The supplied lock time is wrong.\r\nParameter name: LockDuration",
        tracking_id="3d8f_G12",
        system_tracker="bus.example:q",
        now_ms=NOW_MS,
    )
    assert detail == (
        "SubCode=40000. The supplied lock time is wrong.\r\nParameter name: LockDuration. TrackingId:3d8f_G12, "
        "SystemTracker:bus.example:q, Timestamp:2021-04-19T17:23:06"
    )
    error = ElementTree.fromstring(atom.error_document(400, detail + "<&>"))
    assert error.tag == "Error"
    assert error.findtext("Code") == "400"
    assert error.findtext("Detail") == detail + "<&>"
    without = atom.error_detail(None, "no", tracking_id="t", system_tracker="s", now_ms=0)
    assert without == "no. TrackingId:t, SystemTracker:s, Timestamp:1970-01-01T00:00:00"


def test_the_namespace() -> None:
    info = described(atom.namespace_entry(replace(CONTEXT, tier=PREMIUM), NOW_MS, NOW_MS))
    assert info.tag == f"{SB}NamespaceInfo"
    assert names(info) == ["CreatedTime", "MessagingSKU", "MessagingUnits", "ModifiedTime", "Name", "NamespaceType"]
    assert names(described(atom.namespace_entry(CONTEXT, NOW_MS, NOW_MS)))[:2] == ["CreatedTime", "MessagingSKU"]


def test_message_size_is_shown_from_its_version_on() -> None:
    for context, shown in ((CONTEXT, "256"), (OLD, None), (replace(CONTEXT, tier=PREMIUM), "1024")):
        element = described(atom.entity_entry(QUEUE, INFO, context, Moment.READ))
        assert element.findtext(f"{SB}MaxMessageSizeInKilobytes") == shown
    big = replace(QUEUE, max_message_size_in_kilobytes=2048)
    element = described(atom.entity_entry(big, INFO, replace(OLD, tier=PREMIUM), Moment.READ))
    assert element.find(f"{SB}MaxMessageSizeInKilobytes") is None


def test_a_partitioned_queue_shows_all_of_its_size() -> None:
    queue = replace(QUEUE, enable_partitioning=True, partition_count=16, max_size_in_megabytes=3072)
    element = described(atom.entity_entry(queue, INFO, CONTEXT, Moment.READ))
    assert element.findtext(f"{SB}MaxSizeInMegabytes") == "49152"
    assert element.findtext(f"{SB}SupportOrdering") == "false"


def test_hostile_text_stays_text() -> None:
    context = replace(CONTEXT, query='x="><script>&\r\n\x00', namespace="a<b", base_url="https://h\"'")
    evil = '</UserMetadata><Status>Disabled</Status>]]>&lt;"\x01\ud800\ufffe\r\n'
    queue = replace(QUEUE, user_metadata=evil)
    for document in (
        atom.entity_entry(queue, INFO, context, Moment.READ),
        atom.entity_feed([(queue, INFO)], context, QueueDescription, FeedPage("<>", more=True)),
    ):
        (status,) = ElementTree.fromstring(document).iter(f"{SB}Status")
        assert status.text == "Active"
        (metadata,) = ElementTree.fromstring(document).iter(f"{SB}UserMetadata")
        assert metadata.text == '</UserMetadata><Status>Disabled</Status>]]>&lt;"\ufffd\ufffd\ufffd\r\n'


@pytest.mark.parametrize(
    ("skip", "top", "page"),
    [
        (None, None, (0, 100)),
        ("", "", (0, 100)),
        ("5", "7", (5, 7)),
        ("0", "100000", (0, 100)),
        ("+3", "0", (3, 0)),
        ("9999999999", "1", (2**31 - 1, 1)),
    ],
)
def test_pages(skip: str | None, top: str | None, page: tuple[int, int]) -> None:
    assert atom.parse_page(skip, top) == page


@pytest.mark.parametrize(
    ("skip", "top", "words"),
    [
        ("-1", None, "must be non-negative"),
        (None, "-5", "must be non-negative"),
        ("x", None, "not a valid integer"),
        ("1.5", None, "not a valid integer"),
        ("\u0661", None, "not a valid integer"),
        ("9" * 50, None, "not a valid integer"),
        ("-", None, "not a valid integer"),
    ],
)  # fmt: skip
def test_pages_that_cannot_be(skip: str | None, top: str | None, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        atom.parse_page(skip, top)


moments = st.sampled_from(list(Moment))


@given(kit.queues | kit.topics, moments)
def test_entities_come_back_from_their_documents(one, moment: Moment) -> None:
    sent = atom.parse_entity(atom.entity_entry(one, INFO, CONTEXT, moment), one.path)
    read = replace(sent.description, max_message_size_in_kilobytes=None)  # type: ignore[arg-type]
    if isinstance(one, QueueDescription):
        one = _absolute(one)
    assert read == one


@given(kit.subscriptions, moments)
def test_subscriptions_come_back_from_their_documents(one, moment: Moment) -> None:
    document = atom.subscription_entry(one, INFO, CONTEXT, moment)
    assert atom.parse_subscription(document, one.topic, one.name).description == _absolute(one)


def _absolute(one):
    def whole(target: str | None) -> str | None:
        if target is None:
            return None
        return target if "://" in target else f"sb://localhost:5300/{target}"

    for target in (one.forward_to, one.forward_dead_lettered_messages_to):
        if target is not None:
            assert parse_forward_target(whole(target)) == parse_forward_target(target)  # type: ignore[arg-type]
    return replace(
        one,
        forward_to=whole(one.forward_to),
        forward_dead_lettered_messages_to=whole(one.forward_dead_lettered_messages_to),
    )


@given(kit.rules, moments)
def test_rules_come_back_from_their_documents(rule, moment: Moment) -> None:
    assert atom.parse_rule(atom.rule_entry(rule, "t", "s", CONTEXT, moment), rule.name) == rule


@given(st.lists(kit.rules, max_size=3))
def test_feeds_are_well_formed(rules) -> None:
    feed = ElementTree.fromstring(atom.rule_feed(rules, "t", "s", CONTEXT, FeedPage("t/subscriptions/s/rules")))
    assert [entry.findtext(f"{ATOM}title") for entry in feed.findall(f"{ATOM}entry")] == [rule.name for rule in rules]


def test_a_false_filter_keeps_the_text_that_it_came_with() -> None:
    rule = replace(RULE, filter=SqlFilterDescription(expression="1>1"))
    assert b"<SqlExpression>1&gt;1</SqlExpression>" in atom.rule_entry(rule, "t", "s", CONTEXT, Moment.READ)
