"""The file of declared entities: the emulator's form and defaults, our additions, and errors that say where."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus import limits
from polybus.errors import ConfigError
from polybus.gateway.config.file import (
    ConfigFile,
    NamespaceConfig,
    SubscriptionConfig,
    TopicConfig,
    declared_subscription,
    dump,
    load,
)
from polybus.namespace.entities.admission import admit_create
from polybus.namespace.entities.description import (
    INFINITE_MS,
    AccessRight,
    AuthorizationRule,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from polybus.namespace.entities.rule import (
    DEFAULT_RULE,
    FALSE_FILTER,
    TRUE_FILTER,
    CorrelationFilterDescription,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
)
from polybus.namespace.entities.tiers import BASIC, PREMIUM, STANDARD
from polybus.namespace.entities.typed_value import TypedValue
from tests.unit.namespace import description_kit as kit

HOUR_MS = 3_600_000

EXAMPLE = """\ufeff{
  // The emulator's own file has comments such as this one.
  "UserConfig": {
    "Namespaces": [
      { "Name": "sbemulatorns", /* any name
                                   will do */
        "Queues": [
          { "Name": "orders/inbound",
            "Properties": { "LockDuration": "PT30S", "MaxDeliveryCount": 5, "RequiresSession": false,
                            "DeadLetteringOnMessageExpiration": true, "DefaultMessageTimeToLive": "PT30M",
                            "RequiresDuplicateDetection": true, "DuplicateDetectionHistoryTimeWindow": "PT1M",
                            "ForwardDeadLetteredMessagesTo": "orders/poison", "ForwardTo": "", } },
          { "Name": "orders/poison" }, ],
        "Topics": [
          { "Name": "shipments",
            "Properties": { "DefaultMessageTimeToLive": "PT1H" },
            "Subscriptions": [
              { "Name": "billing",
                "Properties": { "LockDuration": "PT1M", "MaxDeliveryCount": 3, "ForwardTo": "orders/inbound" },
                "Rules": [
                  { "Name": "eu-only",
                    "Properties": { "FilterType": "Sql",
                                    "SqlFilter": { "SqlExpression": "region = 'eu' // AND weight > 10" },
                                    "Action": { "SqlExpression": "SET handled = 'billing'" } } },
                  { "Name": "by-subject",
                    "Properties": { "FilterType": "Correlation",
                                    "CorrelationFilter": { "Label": "refund", "Properties": { "vip": true } } } } ] },
              { "Name": "audit" } ] } ] } ],
    "Logging": { "Type": "Console" },
  }
}
"""


def test_the_example_of_the_specification() -> None:
    config = load(EXAMPLE, "config.json")
    assert config.warnings == ()
    queue = QueueDescription(
        path="orders/inbound",
        lock_duration_ms=30_000,
        max_delivery_count=5,
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live_ms=HOUR_MS // 2,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window_ms=60_000,
        forward_dead_lettered_messages_to="orders/poison",
    )
    poison = QueueDescription(
        path="orders/poison",
        default_message_time_to_live_ms=HOUR_MS,
        duplicate_detection_history_time_window_ms=20_000,
        max_delivery_count=3,
    )
    topic = TopicDescription(
        path="shipments",
        default_message_time_to_live_ms=HOUR_MS,
        duplicate_detection_history_time_window_ms=20_000,
    )
    billing = SubscriptionDescription(
        topic="shipments",
        name="billing",
        default_message_time_to_live_ms=HOUR_MS,
        max_delivery_count=3,
        forward_to="orders/inbound",
    )
    audit = SubscriptionDescription(
        topic="shipments", name="audit", default_message_time_to_live_ms=HOUR_MS, max_delivery_count=3
    )
    rules = (
        RuleDescription(
            name="eu-only",
            filter=SqlFilterDescription(expression="region = 'eu' // AND weight > 10"),
            action=SqlActionDescription(expression="SET handled = 'billing'"),
        ),
        RuleDescription(
            name="by-subject",
            filter=CorrelationFilterDescription(label="refund", properties=(("vip", TypedValue("boolean", "true")),)),
        ),
    )
    subscriptions = (SubscriptionConfig(billing, rules), SubscriptionConfig(audit))
    assert config.namespaces == (
        NamespaceConfig("sbemulatorns", (queue, poison), (TopicConfig(topic, subscriptions),)),
    )


def document(**namespace: Any) -> str:
    return json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", **namespace}]}})


def with_queue(properties: Any, name: Any = "q") -> str:
    return document(Queues=[{"Name": name, "Properties": properties}])


def with_topic(properties: Any) -> str:
    return document(Topics=[{"Name": "t", "Properties": properties}])


def with_subscription(properties: Any, name: Any = "s", **more: Any) -> str:
    return document(Topics=[{"Name": "t", "Subscriptions": [{"Name": name, "Properties": properties, **more}]}])


def with_rule(properties: Any, name: Any = "r") -> str:
    return with_subscription({}, Rules=[{"Name": name, "Properties": properties}])


def only_queue(text: str) -> QueueDescription:
    return load(text, "f").namespaces[0].queues[0]


def only_rule(properties: Any) -> RuleDescription:
    return load(with_rule(properties), "f").namespaces[0].topics[0].subscriptions[0].rules[0]


def test_every_property_of_the_management_api_is_known() -> None:
    config = load(
        with_queue(
            {
                "EnablePartitioning": True,
                "MaxSizeInMegabytes": 2048,
                "AutoDeleteOnIdle": "PT10M",
                "UserMetadata": "m",
                "Status": "sendDisabled",
                "EnableExpress": False,
                "EnableBatchedOperations": False,
                "IsAnonymousAccessible": False,
                "AuthorizationRules": [
                    {"KeyName": "k", "Rights": ["Send", "listen"], "PrimaryKey": "p", "SecondaryKey": "s"},
                    {"KeyName": "made", "Rights": ["Manage", "Send", "Listen"]},
                ],
            }
        ),
        "f",
    )
    assert config.warnings == ()
    queue = config.namespaces[0].queues[0]
    assert queue.enable_partitioning
    assert (queue.max_size_in_megabytes, queue.auto_delete_on_idle_ms) == (2048, 600_000)
    assert (queue.user_metadata, queue.status) == ("m", EntityStatus.SEND_DISABLED)
    assert queue.authorization_rules == (
        AuthorizationRule(
            key_name="k", rights=(AccessRight.SEND, AccessRight.LISTEN), primary_key="p", secondary_key="s"
        ),
        AuthorizationRule(key_name="made", rights=tuple(AccessRight)),
    )
    assert admit_create(queue, STANDARD, 1, lambda: "new").partition_count == 16


def test_keys_are_found_in_any_case_and_null_is_absent() -> None:
    text = json.dumps(
        {
            "userconfig": {
                "NAMESPACES": [
                    {
                        "name": "n",
                        "queues": [{"NAME": "q", "properties": {"lockduration": "PT5S", "forwardTo": None}}],
                    }
                ]
            }
        }
    )
    config = load(text, "f")
    assert config.namespaces[0].queues[0].lock_duration_ms == 5_000
    assert config.warnings == ()


def test_lists_may_be_left_out() -> None:
    assert load(document(), "f").namespaces == (NamespaceConfig("ns"),)
    assert load('{"UserConfig": {"Namespaces": []}}', "f").namespaces == ()


def namespace_with_keys(*rules: dict[str, Any]) -> str:
    return json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", "AuthorizationRules": list(rules)}]}})


ROOT_RULE = {"KeyName": "root", "Rights": ["Manage", "Send", "Listen"], "PrimaryKey": "one", "SecondaryKey": "two"}


def test_a_namespace_may_have_keys_of_its_own() -> None:
    config = load(namespace_with_keys(ROOT_RULE, {"KeyName": "s", "Rights": ["send"], "PrimaryKey": "three"}), "f")
    (namespace,) = config.namespaces
    root, sender = namespace.authorization_rules
    assert (root.key_name, root.primary_key, root.secondary_key, len(root.rights)) == ("root", "one", "two", 3)
    assert (sender.rights, sender.primary_key, sender.secondary_key) == ((AccessRight.SEND,), "three", "")
    assert config.warnings == ()
    assert load(dump(config), "f").namespaces == config.namespaces
    assert "PrimaryKey" not in dump(config, with_keys=False)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"PrimaryKey": None}, "PrimaryKey is missing"),
        ({"KeyName": ""}, "A key name must have"),
        ({"Rights": ["Manage"]}, "Manage permission must also include"),
        ({"Rights": []}, "one to three distinct rights"),
        ({"Rights": ["Read"]}, "Manage, Send, Listen"),
    ],
)
def test_a_namespaces_key_that_cannot_be(rule: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match="Namespaces.0..AuthorizationRules.*" + says):
        load(namespace_with_keys({**ROOT_RULE, **rule}), "f")


def test_two_keys_of_a_namespace_with_one_name() -> None:
    with pytest.raises(ConfigError, match="same key name"):
        load(namespace_with_keys(ROOT_RULE, ROOT_RULE), "f")


def test_values_beyond_the_emulator_are_taken_with_a_warning() -> None:
    config = load(
        with_queue(
            {
                "MaxDeliveryCount": 2_147_483_647,
                "DefaultMessageTimeToLive": "P14D",
                "DuplicateDetectionHistoryTimeWindow": "PT10M",
                "LockDuration": "PT5M",
            }
        ),
        "config.json",
    )
    where = "config.json: UserConfig.Namespaces[0].Queues[0].Properties"
    assert config.warnings == (
        f"{where}.DefaultMessageTimeToLive: the value is beyond the emulator's maximum of PT1H",
        f"{where}.DuplicateDetectionHistoryTimeWindow: the value is beyond the emulator's maximum of PT5M",
        f"{where}.MaxDeliveryCount: the value is beyond the emulator's maximum of 10",
    )


def test_more_entities_than_the_emulator_has_are_taken_with_a_warning() -> None:
    queues = [{"Name": f"q{n}"} for n in range(51)]
    subscriptions = [{"Name": f"s{n}"} for n in range(51)]
    text = json.dumps(
        {
            "UserConfig": {
                "Namespaces": [
                    {"Name": "one", "Queues": queues},
                    {"Name": "two", "Topics": [{"Name": "t", "Subscriptions": subscriptions}]},
                ]
            }
        }
    )
    warnings = load(text, "f").warnings
    assert [warning.split(": ", 2)[2] for warning in warnings] == [
        "51 queues and topics; the emulator allows 50",
        "51 subscriptions; the emulator allows 50",
        "2 namespaces; the emulator allows 1",
    ]


def test_unknown_keys_are_warned_of_and_ignored() -> None:
    text = json.dumps(
        {
            "$schema": "x",
            "Extra": 1,
            "UserConfig": {
                "Logging": {},
                "Extra": 1,
                "Namespaces": [
                    {
                        "Name": "n",
                        "Extra": 1,
                        "Queues": [{"Name": "q", "Extra": 1, "Properties": {"Extra": 1, "MaxDeliverycount": 2}}],
                        "Topics": [
                            {
                                "Name": "t",
                                "Extra": 1,
                                "Properties": {"LockDuration": "PT1S"},
                                "Subscriptions": [
                                    {"Name": "s", "Properties": {"AuthorizationRules": []}, "Extra": 1}
                                ],
                            }
                        ],
                    }
                ],
            },
        }
    )
    warnings = load(text, "f").warnings
    unknown = [warning.split(": ")[1] for warning in warnings if warning.endswith("unknown and has no effect")]
    assert len(unknown) == len(warnings)
    base = "UserConfig.Namespaces[0]"
    assert set(unknown) == {
        "Extra",
        "UserConfig.Extra",
        f"{base}.Extra",
        f"{base}.Queues[0].Extra",
        f"{base}.Queues[0].Properties.Extra",
        f"{base}.Topics[0].Extra",
        f"{base}.Topics[0].Properties.LockDuration",
        f"{base}.Topics[0].Subscriptions[0].Extra",
        f"{base}.Topics[0].Subscriptions[0].Properties.AuthorizationRules",
    }


def test_a_window_of_five_seconds_is_taken_from_a_file() -> None:
    queue = only_queue(with_queue({"DuplicateDetectionHistoryTimeWindow": "PT5S"}))
    assert queue.duplicate_detection_history_time_window_ms == 5_000


def test_infinity_can_be_written() -> None:
    queue = only_queue(with_queue({"DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S"}))
    assert queue.default_message_time_to_live_ms == INFINITE_MS


@pytest.mark.parametrize(
    ("properties", "filter_"),
    [
        ({"FilterType": "True"}, TRUE_FILTER),
        ({"FilterType": "falsefilter"}, FALSE_FILTER),
        ({"FilterType": "sql", "SqlFilter": {"SqlExpression": "a = 1"}}, SqlFilterDescription(expression="a = 1")),
        (
            {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a = @p", "Parameters": {"@p": 1, "@P": "x"}}},
            SqlFilterDescription(
                expression="a = @p", parameters=(("@p", TypedValue("int", "1")), ("@P", TypedValue("string", "x")))
            ),
        ),
        (
            {
                "FilterType": "Correlation",
                "CorrelationFilter": {
                    "contentType": "text/plain",
                    "Label": "",
                    "Properties": {
                        "i": 1,
                        "l": 2**40,
                        "d": 1.5,
                        "b": False,
                        "s": "x",
                        "g": {"Type": "short", "Value": "3"},
                    },
                },
            },
            CorrelationFilterDescription(
                content_type="text/plain",
                properties=(
                    ("i", TypedValue("int", "1")),
                    ("l", TypedValue("long", str(2**40))),
                    ("d", TypedValue("double", "1.5")),
                    ("b", TypedValue("boolean", "false")),
                    ("s", TypedValue("string", "x")),
                    ("g", TypedValue("short", "3")),
                ),
            ),
        ),
    ],
)
def test_rules(properties: Any, filter_: Any) -> None:
    assert only_rule(properties).filter == filter_


def test_an_action_without_text_is_none() -> None:
    for action in ({}, {"SqlExpression": ""}, None):
        assert only_rule({"FilterType": "True", "Action": action}).action is None


def with_keys(*rules: Any) -> str:
    return with_queue({"AuthorizationRules": list(rules)})


def correlated(value: Any) -> str:
    return with_rule({"FilterType": "Correlation", "CorrelationFilter": {"Properties": {"a": value}}})


SQL_RULE = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}}
Q = "UserConfig.Namespaces[0].Queues[0]"
P = f"{Q}.Properties"
T = "UserConfig.Namespaces[0].Topics[0]"
S = f"{T}.Subscriptions[0]"
R = f"{S}.Rules[0]"
BAD = [
    ("[]", "the file: the value [...] is not allowed; allowed: an object"),
    ("{}", "the file: UserConfig is missing"),
    ('"x"', 'the file: the value "x" is not allowed'),
    ('{"UserConfig": 3}', "UserConfig: the value 3 is not allowed; allowed: an object"),
    ('{"UserConfig": {}}', "UserConfig: Namespaces is missing"),
    (
        '{"UserConfig": {"Namespaces": {}}}',
        "UserConfig.Namespaces: the value {...} is not allowed; allowed: an array",
    ),
    ('{"UserConfig": {"Namespaces": [3]}}', "UserConfig.Namespaces[0]: the value 3 is not allowed"),
    ('{"UserConfig": {"Namespaces": [{}]}}', "UserConfig.Namespaces[0]: Name is missing"),
    ('{"UserConfig": {"Namespaces": [{"Name": ""}]}}', "UserConfig.Namespaces[0]: Name is empty"),
    ('{"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "A"}]}}', "Namespaces[1]: there is another namespace"),
    ('{"UserConfig": {}, "userconfig": {}}', "the file: the key 'UserConfig' is given more than once"),
    (document(Queues={}), "UserConfig.Namespaces[0].Queues: the value {...} is not allowed; allowed: an array"),
    (document(Queues=[{}]), f"{Q}: Name is missing"),
    (document(Queues=[{"Name": 5}]), f"{Q}.Name: the value 5 is not allowed; allowed: a string"),
    (document(Queues=[{"Name": ""}]), f"{Q}.Name: "),
    (document(Queues=[{"Name": "a b"}]), f'{Q}.Name: the value "a b" is not allowed; allowed: a valid name.'),
    (document(Queues=[{"Name": "../a"}]), f"{Q}.Name: "),
    (document(Queues=[{"Name": "a\u0000"}]), f"{Q}.Name: "),
    (document(Queues=[{"Name": "a/messages"}]), "reserved"),
    (document(Queues=[{"Name": "x" * 261}]), "1 to 260 characters"),
    (document(Queues=[{"Name": "q"}, {"Name": "Q"}]), "Queues[1]: there is another queue or topic called 'Q'"),
    (document(Queues=[{"Name": "q"}], Topics=[{"Name": "q"}]), f"{T}: there is another queue or topic called 'q'"),
    (with_queue(3), f"{P}: the value 3 is not allowed; allowed: an object"),
    (with_queue([]), f"{P}: the value [...] is not allowed; allowed: an object"),
    (
        with_queue({"LockDuration": "PT10M"}),
        f'{P}.LockDuration: the value "PT10M" is not allowed; allowed: PT5S to PT5M.',
    ),
    (with_queue({"LockDuration": "PT1S"}), "allowed: PT5S to PT5M"),
    (with_queue({"LockDuration": 60}), f"{P}.LockDuration: the value 60 is not allowed; allowed: a string"),
    (with_queue({"LockDuration": "1 minute"}), 'allowed: a duration such as "PT1M"'),
    (with_queue({"LockDuration": "-PT1M"}), "allowed: a duration"),
    (
        with_queue({"MaxDeliveryCount": 0}),
        f"{P}.MaxDeliveryCount: the value 0 is not allowed; allowed: 1 to 2147483647",
    ),
    (
        with_queue({"MaxDeliveryCount": "3"}),
        f'{P}.MaxDeliveryCount: the value "3" is not allowed; allowed: an integer of 32 bits',
    ),
    (with_queue({"MaxDeliveryCount": 3.0}), "allowed: an integer of 32 bits"),
    (with_queue({"MaxDeliveryCount": True}), "allowed: an integer of 32 bits"),
    (with_queue({"MaxDeliveryCount": 2**31}), "allowed: an integer of 32 bits"),
    (
        with_queue({"RequiresSession": "true"}),
        f'{P}.RequiresSession: the value "true" is not allowed; allowed: true or false',
    ),
    (with_queue({"RequiresSession": 1}), "allowed: true or false"),
    (with_queue({"DefaultMessageTimeToLive": "PT0S"}), "allowed: PT1S or more"),
    (with_queue({"DuplicateDetectionHistoryTimeWindow": "PT4S"}), "allowed: PT5S to P7D"),
    (with_queue({"AutoDeleteOnIdle": "PT1M"}), "allowed: PT5M or more"),
    (
        with_queue({"MaxSizeInMegabytes": 100}),
        f"{P}.MaxSizeInMegabytes: the value 100 is not allowed; allowed: 1024;2048",
    ),
    (
        with_queue({"MaxMessageSizeInKilobytes": 1024}),
        f"{P}.MaxMessageSizeInKilobytes: the value 1024 is not allowed",
    ),
    (with_queue({"Status": "Asleep"}), "allowed: Active, Disabled, SendDisabled, ReceiveDisabled"),
    (with_queue({"Status": "Deleting"}), "allowed: Active, Disabled, SendDisabled, ReceiveDisabled"),
    (with_queue({"UserMetadata": "x" * 1025}), "at most 1024 characters"),
    (with_queue({"UserMetadata": "\u0001"}), "XML cannot carry"),
    (with_queue({"UserMetadata": "\ud800"}), "XML cannot carry"),
    (with_queue({"ForwardTo": "a b"}), f"{P}.ForwardTo: "),
    (with_queue({"ForwardTo": "t/Subscriptions/s"}), "allowed: the path or the URL of a queue or a topic"),
    (with_queue({"EnableExpress": True, "RequiresDuplicateDetection": True}), f"{P}.EnableExpress: "),
    (
        with_queue({"lockDuration": "PT5S", "LockDuration": "PT5S"}),
        f"{P}: the key 'lockDuration' is given more than once",
    ),
    (with_queue({"AuthorizationRules": {}}), f"{P}.AuthorizationRules: "),
    (with_keys({"KeyName": "k"}), f"{P}.AuthorizationRules[0]: Rights is missing"),
    (with_keys({"Rights": ["Send"]}), f"{P}.AuthorizationRules[0]: KeyName is missing"),
    (
        with_queue({"AuthorizationRules": [{"KeyName": "k", "Rights": ["Own"]}]}),
        f'{P}.AuthorizationRules[0].Rights[0]: the value "Own"',
    ),
    (with_keys({"KeyName": "k", "Rights": []}), "one to three distinct rights"),
    (with_keys({"KeyName": "k", "Rights": ["Manage"]}), "must also include Send and Listen"),
    (
        with_topic({"RequiresDuplicateDetection": None, "AutoDeleteOnIdle": "PT1S"}),
        f"{T}.Properties.AutoDeleteOnIdle",
    ),
    (document(Topics=[{"Name": "t", "Subscriptions": 3}]), f"{T}.Subscriptions: the value 3 is not allowed"),
    (with_subscription({}, name="a/b"), f"{S}.Name: "),
    (with_subscription({}, name="s" * 51), "1 to 50 characters"),
    (with_subscription({"LockDuration": "PT6M"}), f"{S}.Properties.LockDuration: "),
    (
        document(Topics=[{"Name": "t", "Subscriptions": [{"Name": "s"}, {"Name": "S"}]}]),
        "another subscription called 'S'",
    ),
    (with_subscription({}, Rules=[{"Name": "r"}]), f"{R}: Properties is missing"),
    (with_subscription({}, Rules=[{"Properties": {}}]), f"{R}: Name is missing"),
    (with_rule({}), f"{R}.Properties: FilterType is missing"),
    (
        with_rule({"FilterType": "Magic"}),
        f'{R}.Properties.FilterType: the value "Magic" is not allowed; allowed: Sql, Corr',
    ),
    (with_rule({"FilterType": "Sql"}), f"{R}.Properties: SqlFilter is missing"),
    (with_rule({"FilterType": "Sql", "SqlFilter": {}}), f"{R}.Properties.SqlFilter: SqlExpression is missing"),
    (with_rule({"FilterType": "Sql", "SqlFilter": {"SqlExpression": ""}}), "1 to 1024 characters"),
    (with_rule({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "x" * 1025}}), "1 to 1024 characters"),
    (with_rule({**SQL_RULE, "Action": {"SqlExpression": "x" * 1025}}), "1 to 1024 characters"),
    (with_rule({**SQL_RULE, "Action": {"SqlExpression": 3}}), f"{R}.Properties.Action.SqlExpression: the value 3"),
    (with_rule({"FilterType": "Correlation"}), f"{R}.Properties: CorrelationFilter is missing"),
    (with_rule({"FilterType": "Correlation", "CorrelationFilter": {}}), "at least one field or property"),
    (correlated(None), ".Properties.a: the value null"),
    (correlated([1]), "the value [...] is not allowed"),
    (correlated(2**70), "of type unsignedLong"),
    (correlated({"Type": "int"}), "Value is missing"),
    (correlated({"Type": "int", "Value": "x"}), "not of type int"),
    (with_rule(SQL_RULE, name="a b"), f"{R}: "),
    (with_subscription({}, Rules=[{"Name": "r", "Properties": SQL_RULE}] * 2), "another rule called 'r'"),
]


@pytest.mark.parametrize(("text", "words"), BAD)
def test_files_that_cannot_be(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(text, "dir/config.json")
    assert str(refusal.value).startswith("dir/config.json: ")
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1, column 1"),
        ("{", "line 1, column 2"),
        ('{\n  "a": 1\n  "b": 2\n}', "line 3, column 3"),
        ('{\n  // "x": 1,\n  "a" 1\n}', "line 3, column 7"),
        ('{ /* a\n b */ "a": tru }', "line 2, column 12"),
        ('{\n "a": "no end\n}', "line 2, column 7: the string has no end"),
        ('{"a": "no end', "line 1, column 7: the string has no end"),
        ('{"a": "\\', "line 1, column 7: the string has no end"),
        ("{\n\n   /* no end", "line 3, column 4: the comment has no end"),
        ("/*/", "line 1, column 1: the comment has no end"),
        ('{"a": 1,,}', "line 1, column 9"),
        ("[,]", "line 1, column 2"),
        ("{,}", "line 1, column 2"),
        ('{"a": 1} x', "line 1, column 10"),
        ("{'a': 1}", "line 1, column 2"),
        ('{"a": NaN}', "NaN is not a number in JSON"),
        ('{"a": -Infinity}', "-Infinity is not a number in JSON"),
        ('{"a": ' + "9" * 5000 + "}", "config.json: "),
        ("[" * 100_000, "line 1, column 65: more than 64 levels"),
        ('{"a":' * 100, "more than 64 levels"),
        ('{"a": 1 / 2}', "line 1, column 9"),
        ('{"a": "\x01"}', "line 1, column 8"),
    ],
)
def test_texts_that_are_no_json(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(text, "config.json")
    assert words in str(refusal.value)


def test_comments_and_commas_inside_strings_stay() -> None:
    queue = only_queue(
        '{"UserConfig": {"Namespaces": [{"Name": "// no", "Queues": [{"Name": "q", "Properties":\n'
        '{"UserMetadata": "/* no */ // no, \\" ,] ,} \\\\"/**/,//x\n}},],},],},}'
    )
    assert queue.user_metadata == '/* no */ // no, " ,] ,} \\'


def test_a_file_of_many_open_quotes_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="column 1: the string has no end"):
        load('"' + '\\"' * 200_000, "f")


def test_tiers() -> None:
    with pytest.raises(ConfigError, match="'Basic' tier"):
        load(with_topic({}), "f", BASIC)
    with pytest.raises(ConfigError, match=r"EnablePartitioning: .* Partitioning cannot be enabled"):
        load(with_queue({"EnablePartitioning": True}), "f", PREMIUM)
    big = load(with_queue({"MaxSizeInMegabytes": 81920, "MaxMessageSizeInKilobytes": 102400}), "f", PREMIUM)
    assert big.namespaces[0].queues[0].max_size_in_megabytes == 81920


def test_an_error_about_a_key_does_not_show_it() -> None:
    secret = "SECRET" * 60
    text = with_queue({"AuthorizationRules": [{"KeyName": "k", "Rights": ["Send"], "PrimaryKey": secret}]})
    with pytest.raises(ConfigError) as refusal:
        load(text, "f")
    assert "SECRET" not in str(refusal.value)


subscription_configs = st.builds(
    SubscriptionConfig,
    kit.subscriptions,
    st.lists(kit.rules, max_size=3, unique_by=lambda rule: rule.name.lower()).map(tuple),
)


def _as_file_form(topic: TopicDescription, subscriptions: list[SubscriptionConfig]) -> TopicConfig:
    moved = [SubscriptionConfig(replace(each.description, topic=topic.path), each.rules) for each in subscriptions]
    return TopicConfig(topic, tuple(moved))


topic_configs = st.builds(
    _as_file_form,
    kit.topics,
    st.lists(subscription_configs, max_size=3, unique_by=lambda each: each.description.name.lower()),
)


@st.composite
def configs(draw: st.DrawFn) -> ConfigFile:
    names = draw(st.lists(kit.filled_text, min_size=1, max_size=2, unique_by=str.lower))
    return ConfigFile(tuple(draw(namespaces(name)) for name in names))


@st.composite
def namespaces(draw: st.DrawFn, name: str) -> NamespaceConfig:
    queues = draw(st.lists(kit.queues, max_size=3, unique_by=lambda queue: queue.path.lower()))
    taken = {queue.path.lower() for queue in queues}
    topics = draw(st.lists(topic_configs, max_size=2, unique_by=lambda topic: topic.description.path.lower()))
    free = tuple(topic for topic in topics if topic.description.path.lower() not in taken)
    return NamespaceConfig(name, tuple(queues), free)


@given(configs())
def test_what_is_written_is_read_back(config: ConfigFile) -> None:
    assert load(dump(config), "f") == config


def test_what_is_written_is_short_and_can_do_without_keys() -> None:
    rule = AuthorizationRule(key_name="k", rights=(AccessRight.SEND,), primary_key="SECRET", secondary_key="SECRET")
    queue = QueueDescription(
        path="q",
        default_message_time_to_live_ms=HOUR_MS,
        duplicate_detection_history_time_window_ms=20_000,
        max_delivery_count=10,
        authorization_rules=(rule,),
    )
    config = ConfigFile((NamespaceConfig("n", (queue,)),))
    data = json.loads(dump(config, with_keys=False))
    assert data["UserConfig"]["Namespaces"][0]["Queues"] == [
        {
            "Name": "q",
            "Properties": {"MaxDeliveryCount": 10, "AuthorizationRules": [{"KeyName": "k", "Rights": ["Send"]}]},
        }
    ]
    assert "SECRET" in dump(config)


def test_a_live_subscription_as_a_file_declares_it() -> None:
    live = SubscriptionDescription(topic="t", name="s", created_at_ms=5, updated_at_ms=6)
    plain = SubscriptionDescription(topic="t", name="s")
    default = replace(DEFAULT_RULE, created_at_ms=7)
    other = RuleDescription(name="r", created_at_ms=8)
    assert declared_subscription(live, [default]) == SubscriptionConfig(plain)
    assert declared_subscription(live, [default, other]).rules == (DEFAULT_RULE, replace(other, created_at_ms=0))
    (nothing,) = declared_subscription(live, []).rules
    assert nothing.filter == FALSE_FILTER


def test_a_compatibility_level_is_kept() -> None:
    rule = RuleDescription(name="r", filter=SqlFilterDescription(expression="a", compatibility_level=25))
    topic = TopicDescription(path="t")
    one = SubscriptionConfig(SubscriptionDescription(topic="t", name="s"), (rule,))
    config = ConfigFile((NamespaceConfig("n", (), (TopicConfig(topic, (one,)),)),))
    assert load(dump(config), "f") == config


@pytest.mark.parametrize(
    ("text", "line", "key", "meant"),
    [
        ('{"UserConfig": {"Namespaces": [\n{"Name": "n",\n "Queus": []}]}}', 3, "Queus", "Queues"),
        ('{"UserConfg": {}}', 1, "UserConfg", "UserConfig"),
        (
            '{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "q",\n"Properties": '
            '{"LockDuraton": "PT1M"}}]}]}}',
            2,
            "LockDuraton",
            "LockDuration",
        ),
    ],
)
def test_a_key_that_is_misspelled_is_an_error_with_its_line(text: str, line: int, key: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text, "f")
    assert str(caught.value) == f"f: line {line}: the key '{key}' is unknown; '{meant}' is meant, it seems"


def test_a_property_of_another_kind_is_no_misspelling() -> None:
    """Topics have no RequiresSession, and it is not near enough to anything that they have."""
    topic = '{"Name": "t", "Properties": {"RequiresSession": true, "MaxDeliveryCount": 3}}'
    config = load('{"UserConfig": {"Namespaces": [{"Name": "n", "Topics": [' + topic + "]}]}}", "f")
    assert len(config.warnings) == 2


def test_a_file_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONFIG_FILE_CHARACTERS", 10)
    with pytest.raises(ConfigError, match="f: the file has more than 10 characters"):
        load(EXAMPLE, "f")


@given(st.text(max_size=60) | st.text('{}[]",:/*\\ \n01ante', max_size=60))
def test_any_text_is_refused_with_the_name_of_the_file(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^the-file: "):
        load(text, "the-file")
