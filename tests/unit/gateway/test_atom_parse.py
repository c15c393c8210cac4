"""Request bodies as each SDK writes them, and everything that a body can be besides: broken, hostile, too much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus import limits
from polybus.errors import ArgumentError
from polybus.gateway.atom.documents import parse_entity, parse_rule, parse_subscription
from polybus.namespace.entities.description import (
    INFINITE_MS,
    AccessRight,
    EntityStatus,
    QueueDescription,
    TopicDescription,
)
from polybus.namespace.entities.rule import (
    FALSE_FILTER,
    TRUE_FILTER,
    CorrelationFilterDescription,
    FilterKind,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
)
from polybus.namespace.entities.typed_value import TypedValue

SB = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
XSD = "http://www.w3.org/2001/XMLSchema"


def entry(inside: str) -> bytes:
    return (
        f'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">{inside}</content></entry>'
    ).encode()


def queue_body(inside: str) -> bytes:
    return entry(f'<QueueDescription xmlns="{SB}" xmlns:i="{XSI}">{inside}</QueueDescription>')


def rule_body(inside: str) -> bytes:
    return entry(f'<RuleDescription xmlns="{SB}" xmlns:i="{XSI}">{inside}</RuleDescription>')


def test_python_sends_prefixes_and_single_quotes() -> None:
    body = (
        "<?xml version='1.0' encoding='utf-8'?>\n"
        f'<ns0:entry xmlns:ns0="http://www.w3.org/2005/Atom" xmlns="{SB}"><ns0:content type="application/xml">'
        "<QueueDescription><LockDuration>PT13S</LockDuration><MaxSizeInMegabytes>3072</MaxSizeInMegabytes>"
        "<DefaultMessageTimeToLive>P10675199DT2H48M5.477539S</DefaultMessageTimeToLive>"
        "<EnablePartitioning>true</EnablePartitioning><SizeInBytes>99</SizeInBytes>"
        "<CreatedAt>2021-04-19T17:23:06.200Z</CreatedAt><AuthorizationRules />"
        "<ForwardTo>sb://h/x</ForwardTo></QueueDescription></ns0:content></ns0:entry>"
    ).encode()
    sent = parse_entity(body, "q")
    assert sent.description == QueueDescription(
        path="q",
        lock_duration_ms=13_000,
        max_size_in_megabytes=3072,
        default_message_time_to_live_ms=INFINITE_MS,
        enable_partitioning=True,
        forward_to="sb://h/x",
    )
    assert "AuthorizationRules" in sent.given
    assert "RequiresSession" not in sent.given


def test_javascript_sends_updated_and_its_own_prefixes() -> None:
    body = (
        '<?xml version="1.0" encoding="utf-8" standalone="yes"?>'
        '<entry xmlns="http://www.w3.org/2005/Atom"><updated>2026-01-01T00:00:00.000Z</updated>'
        f'<content type="application/xml"><RuleDescription xmlns="{SB}" xmlns:i="{XSI}">'
        f'<Filter xmlns:p4="{XSI}" p4:type="CorrelationFilter"><Label>red</Label><Properties>'
        f'<KeyValueOfstringanyType><Key>n</Key><Value xmlns:l28="{XSD}" xmlns:p4="{XSI}" p4:type="l28:double">1'
        "</Value></KeyValueOfstringanyType></Properties></Filter>"
        f'<Action xmlns:p4="{XSI}" p4:type="SqlRuleAction"><SqlExpression>SET a = 1</SqlExpression></Action>'
        "<Name>other</Name></RuleDescription></content></entry>"
    ).encode()
    assert parse_rule(body, "r") == RuleDescription(
        name="r",
        filter=CorrelationFilterDescription(label="red", properties=(("n", TypedValue("double", "1")),)),
        action=SqlActionDescription(expression="SET a = 1"),
    )


def test_dotnet_sends_indented_lines_and_a_default_rule() -> None:
    body = entry(
        f'<SubscriptionDescription\r\n  xmlns="{SB}"\r\n  xmlns:i="{XSI}">\r\n'
        "  <LockDuration>PT1M</LockDuration>\r\n  <RequiresSession>true</RequiresSession>\r\n"
        '  <ForwardTo i:nil="true" />\r\n'
        "  <DefaultRuleDescription>\r\n"
        '    <Filter i:type="SqlFilter">\r\n      <SqlExpression>a = 1</SqlExpression>\r\n    </Filter>\r\n'
        '    <Action i:type="EmptyRuleAction" />\r\n    <Name>mine</Name>\r\n'
        "  </DefaultRuleDescription>\r\n  <SkippedUpdate>false</SkippedUpdate>\r\n</SubscriptionDescription>\r\n"
    )
    sent = parse_subscription(body, "t", "s")
    assert sent.description.requires_session  # type: ignore[union-attr]
    assert sent.description.forward_to is None  # type: ignore[union-attr]
    assert sent.default_rule == RuleDescription(name="mine", filter=SqlFilterDescription(expression="a = 1"))
    assert "ForwardTo" not in sent.given


def test_java_generates_prefixes() -> None:
    body = (
        "<?xml version='1.0' encoding='utf-8'?><entry xmlns='http://www.w3.org/2005/Atom'>"
        f"<content type='application/xml'><wstxns1:QueueDescription xmlns:wstxns1='{SB}'>"
        f"<wstxns1:AuthorizationRules><wstxns1:AuthorizationRule xmlns:wstxns2='{XSI}' "
        "wstxns2:type='SharedAccessAuthorizationRule'><wstxns1:Rights><wstxns1:AccessRights>Send"
        "</wstxns1:AccessRights></wstxns1:Rights><wstxns1:KeyName>k</wstxns1:KeyName>"
        "<wstxns1:PrimaryKey>p</wstxns1:PrimaryKey></wstxns1:AuthorizationRule></wstxns1:AuthorizationRules>"
        "<wstxns1:Status>receivedisabled</wstxns1:Status></wstxns1:QueueDescription></content></entry>"
    ).encode()
    description = parse_entity(body, "q").description
    assert isinstance(description, QueueDescription)
    (rule,) = description.authorization_rules
    assert (rule.key_name, rule.rights, rule.primary_key, rule.secondary_key) == ("k", (AccessRight.SEND,), "p", "")
    assert description.status is EntityStatus.RECEIVE_DISABLED


def test_an_empty_description_is_all_defaults() -> None:
    assert parse_entity(queue_body(""), "q").description == QueueDescription(path="q")
    topic = parse_entity(entry(f'<TopicDescription xmlns="{SB}"/>'), "t")
    assert topic.description == TopicDescription(path="t")
    assert topic.given == frozenset()


def test_order_comments_whitespace_and_byte_order_marks_do_not_matter() -> None:
    body = b"\xef\xbb\xbf" + queue_body(
        "<!-- c --><MaxDeliveryCount>\n 7 \n</MaxDeliveryCount><LockDuration> PT5S </LockDuration>"
        "<RequiresSession> TRUE </RequiresSession><UserMetadata><![CDATA[<x>]]>&amp;&#233;</UserMetadata><Unknown>"
        "<LockDuration>PT1S</LockDuration></Unknown><MaxSizeInMegabytes></MaxSizeInMegabytes>"
    )
    assert parse_entity(body, "q").description == QueueDescription(
        path="q", max_delivery_count=7, lock_duration_ms=5_000, requires_session=True, user_metadata="<x>&é"
    )


def test_a_second_element_of_a_name_does_not_count() -> None:
    body = queue_body("<MaxDeliveryCount>1</MaxDeliveryCount><MaxDeliveryCount>2</MaxDeliveryCount>")
    assert parse_entity(body, "q").description == QueueDescription(path="q", max_delivery_count=1)


@pytest.mark.parametrize(
    ("inside", "filter_"),
    [
        ('<Filter i:type="TrueFilter"/>', TRUE_FILTER),
        ('<Filter i:type="FalseFilter"><SqlExpression>1=0</SqlExpression></Filter>', FALSE_FILTER),
        (
            '<Filter i:type="FalseFilter"><SqlExpression>1&gt;1</SqlExpression></Filter>',
            SqlFilterDescription(kind=FilterKind.FALSE, expression="1>1"),
        ),
        ("", TRUE_FILTER),
        ("<Filter><SqlExpression>a=1</SqlExpression></Filter>", SqlFilterDescription(expression="a=1")),
        ("<Filter><Label>x</Label></Filter>", CorrelationFilterDescription(label="x")),
        (
            '<Filter i:type="SqlFilter"><SqlExpression>a</SqlExpression><CompatibilityLevel>20</CompatibilityLevel>'
            "<RequiresPreprocessing>true</RequiresPreprocessing><Parameters /></Filter>",
            SqlFilterDescription(expression="a", requires_preprocessing=True),
        ),
        (
            '<Filter i:type="CorrelationFilter"><Label></Label><To i:nil="true">x</To><SessionId>s</SessionId>'
            "</Filter>",
            CorrelationFilterDescription(session_id="s"),
        ),
    ],
)  # fmt: skip
def test_filters(inside: str, filter_) -> None:
    assert parse_rule(rule_body(inside), "r").filter == filter_


def test_values_keep_type_and_text() -> None:
    pairs = "".join(
        f'<KeyValueOfstringanyType><Key>k{n}</Key><Value {type_}>{text}</Value></KeyValueOfstringanyType>'
        for n, (type_, text) in enumerate(
            [
                ('i:type="x:string"', " a "),
                ('i:type="x:int"', " 5 "),
                ("", "bare"),
                ('i:type="duration"', "PT1.5S"),
                ('i:type="x:guid"', "00000000-0000-0000-0000-000000000001"),
                ('i:type="x:dateTime"', "2020-07-05T11:12:13"),
                ('i:type="x:string"', ""),
            ]
        )
    )  # fmt: skip
    body = rule_body(f'<Filter i:type="CorrelationFilter"><Properties>{pairs}</Properties></Filter>')
    filter_ = parse_rule(body, "r").filter
    assert isinstance(filter_, CorrelationFilterDescription)
    assert [(value.type, value.text) for _, value in filter_.properties] == [
        ("string", " a "),
        ("int", "5"),
        ("string", "bare"),
        ("duration", "PT1.5S"),
        ("guid", "00000000-0000-0000-0000-000000000001"),
        ("dateTime", "2020-07-05T11:12:13"),
        ("string", ""),
    ]


@pytest.mark.parametrize(
    "inside",
    [
        "<LockDuration>soon</LockDuration>",
        "<LockDuration>-PT1S</LockDuration>",
        "<LockDuration>60</LockDuration>",
        "<MaxDeliveryCount>many</MaxDeliveryCount>",
        "<MaxDeliveryCount>1.0</MaxDeliveryCount>",
        "<MaxDeliveryCount>2147483648</MaxDeliveryCount>",
        "<MaxDeliveryCount>99999999999999999999999</MaxDeliveryCount>",
        "<MaxDeliveryCount>1_0</MaxDeliveryCount>",
        "<MaxDeliveryCount>-</MaxDeliveryCount>",
        "<MaxSizeInMegabytes>9223372036854775808</MaxSizeInMegabytes>",
        "<RequiresSession>yes</RequiresSession>",
        "<Status>Sleeping</Status>",
        "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Own</AccessRights></Rights>"
        "</AuthorizationRule></AuthorizationRules>",
    ],
)
def test_values_that_cannot_be_read(inside: str) -> None:
    with pytest.raises(ArgumentError):
        parse_entity(queue_body(inside), "q")


def test_an_error_names_the_parameter() -> None:
    with pytest.raises(ArgumentError, match="Parameter name: LockDuration"):
        parse_entity(queue_body("<LockDuration>soon</LockDuration>"), "q")


@pytest.mark.parametrize(
    "inside",
    [
        '<Filter i:type="MagicFilter"/>',
        '<Action i:type="MagicAction"/>',
        '<Filter i:type="SqlFilter"><CompatibilityLevel>x</CompatibilityLevel></Filter>',
        '<Filter i:type="SqlFilter"><CompatibilityLevel></CompatibilityLevel></Filter>',
        '<Filter i:type="SqlFilter"><RequiresPreprocessing>x</RequiresPreprocessing></Filter>',
        '<Filter i:type="CorrelationFilter"><Properties><K><Key>k</Key></K></Properties></Filter>',
        '<Filter i:type="CorrelationFilter"><Properties><K><Key>k</Key><Value i:type="x:int">a</Value></K>'
        "</Properties></Filter>",
        '<Filter i:type="CorrelationFilter"><Properties><K><Key>k</Key><Value i:type="x:anyType">a</Value></K>'
        "</Properties></Filter>",
    ],
)
def test_rules_that_cannot_be_read(inside: str) -> None:
    with pytest.raises(ArgumentError):
        parse_rule(rule_body(inside), "r")


@pytest.mark.parametrize("version", ["2017-04", "2013-10", "2021-04"])
def test_message_size_is_refused_before_its_version(version: str) -> None:
    body = queue_body("<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>")
    with pytest.raises(ArgumentError, match="MaxMessageSizeInKilobytes"):
        parse_entity(body, "q", version)
    for later in ("2021-05", "2024-05", ""):
        description = parse_entity(body, "q", later).description
        assert isinstance(description, QueueDescription)
        assert description.max_message_size_in_kilobytes == 256


def test_partitioning_is_refused_before_its_version() -> None:
    body = queue_body("<EnablePartitioning>true</EnablePartitioning>")
    with pytest.raises(ArgumentError, match="2013-10"):
        parse_entity(body, "q", "2012-08")
    assert parse_entity(body, "q", "2013-10").description == QueueDescription(path="q", enable_partitioning=True)
    plain = queue_body("<EnablePartitioning>false</EnablePartitioning>")
    early = parse_entity(plain, "q", "2012-08")
    assert early.description == QueueDescription(path="q")
    assert "EnablePartitioning" not in early.given


WRONG_DOCUMENTS = [
    b"",
    b" ",
    b"{}",
    b"<entry/>",
    b"<entry><content/></entry>",
    b"<entry><content>text</content></entry>",
    b"<feed><content><QueueDescription/></content></feed>",
    b"<QueueDescription/>",
    entry("<RuleDescription/>"),
    entry("<StreamDescription/>"),
    entry("<x><QueueDescription/></x>"),
    entry("<QueueDescription>"),
    entry("<p:QueueDescription/>"),
    entry("<QueueDescription a='1' a='2'/>"),
    entry("<QueueDescription>&nbsp;</QueueDescription>"),
    entry("<QueueDescription>&#0;</QueueDescription>"),
    queue_body("") + b"<again/>",
    queue_body("<UserMetadata>\x01</UserMetadata>"),
]


@pytest.mark.parametrize("body", WRONG_DOCUMENTS)
def test_documents_that_are_none_of_ours(body: bytes) -> None:
    with pytest.raises(ArgumentError) as refusal:
        parse_entity(body, "q")
    assert refusal.value.http_status == 400


def lol(levels: int) -> bytes:
    entities = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(levels))
    return (
        f'<?xml version="1.0"?><!DOCTYPE e [<!ENTITY l0 "lol">{entities}]>'
        f"<entry><content><QueueDescription>&l{levels};</QueueDescription></content></entry>"
    ).encode()


ATTACKS = {
    "billion laughs": lol(9),
    "quadratic blow-up": b'<!DOCTYPE e [<!ENTITY a "' + b"a" * 50_000 + b'">]><entry>' + b"&a;" * 5_000 + b"</entry>",
    "external entity": b'<!DOCTYPE e [<!ENTITY x SYSTEM "file:///etc/hostname">]><entry>&x;</entry>',
    "external entity over the network": b'<!DOCTYPE e [<!ENTITY x SYSTEM "http://127.0.0.1:1/x">]><entry>&x;</entry>',
    "parameter entity": b'<!DOCTYPE e [<!ENTITY % x SYSTEM "file:///etc/hostname"> %x;]><entry/>',
    "external document type": b'<!DOCTYPE entry SYSTEM "file:///etc/hostname"><entry/>',
    "public document type": b'<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0//EN" "http://127.0.0.1:1/x.dtd"><entry/>',
    "bare document type": b"<!DOCTYPE entry><entry><content><QueueDescription/></content></entry>",
    "100,000 levels": b"<a>" * 100_000 + b"</a>" * 100_000,
    "40 levels": entry("<QueueDescription>" + "<a>" * 40 + "</a>" * 40 + "</QueueDescription>"),
    "huge text": queue_body("<UserMetadata>" + "x" * 1_000_000 + "</UserMetadata>"),
    "huge name": b"<" + b"a" * 1_000_000 + b"/>",
    "huge attribute": b'<entry a="' + b"x" * 1_000_000 + b'"/>',
    "huge token without an end": b"<!--" + b"x" * 1_000_000,
    "many elements": entry("<QueueDescription>" + "<a/>" * 10_000 + "</QueueDescription>"),
    "many attributes": b"<entry " + b" ".join(b'a%d=""' % n for n in range(1_000)) + b"/>",
    "utf-16": queue_body("").decode().encode("utf-16"),
    "utf-16 without a mark": queue_body("").decode().encode("utf-16-le"),
    "utf-32": queue_body("").decode().encode("utf-32"),
    "utf-7": b'<?xml version="1.0" encoding="utf-7"?>+ADw-entry+AD4-',
    "latin-1": '<?xml version="1.0" encoding="iso-8859-1"?><entry>é</entry>'.encode("latin-1"),
    "a codec of Python": b'<?xml version="1.0" encoding="rot13"?><entry/>',
    "an unknown encoding": b'<?xml version="1.0" encoding="\xff\xff"?><entry/>',
    "broken utf-8": queue_body("").replace(b"QueueDescription ", b"Queue\xc3Description "),
    "overlong utf-8": queue_body("<UserMetadata>X</UserMetadata>").replace(b">X<", b">\xc0\xbc<"),
    "surrogates in utf-8": queue_body("<UserMetadata>X</UserMetadata>").replace(b">X<", b">\xed\xa0\x80<"),
    "xinclude": b'<entry xmlns:xi="http://www.w3.org/2001/XInclude"><content>'
    b'<xi:include href="file:///etc/hostname" parse="text"/></content></entry>',
    "stylesheet only": b'<?xml-stylesheet href="file:///etc/hostname"?>',
    "gzip": b"\x1f\x8b\x08\x00" + b"\x00" * 100,
    "nul": queue_body("").replace(b"<content", b"<con\x00tent"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_are_refused(name: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        parse_entity(ATTACKS[name], "q")
    assert len(refusal.value.description) < 300


def test_a_refused_body_is_never_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entity is refused where it is declared, before anything could follow it."""

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("something was opened")

    monkeypatch.setattr("builtins.open", forbidden)
    monkeypatch.setattr("socket.socket", forbidden)
    for name in ("external entity", "external document type", "parameter entity", "public document type"):
        with pytest.raises(ArgumentError, match="document type or entities"):
            parse_entity(ATTACKS[name], "q")


def test_a_body_as_large_as_is_allowed() -> None:
    room = limits.XML_BODY_BYTES - len(queue_body("<UserMetadata></UserMetadata>"))
    body = queue_body(f"<UserMetadata>{'x' * room}</UserMetadata>")
    assert len(body) == limits.XML_BODY_BYTES
    assert len(parse_entity(body, "q").description.user_metadata or "") == room
    with pytest.raises(ArgumentError, match="larger than"):
        parse_entity(body + b" ", "q")


@given(
    st.binary(max_size=200) | st.text("<>/&;!?[]= \"'abQueueDescription-DOCTYPENTI%x:", max_size=200).map(str.encode)
)
def test_any_bytes_are_refused_or_read(body: bytes) -> None:
    for document in (body, queue_body(body.decode("utf-8", "replace"))):
        try:
            sent = parse_entity(document, "q")
        except ArgumentError:
            continue
        assert isinstance(sent.description, QueueDescription)
