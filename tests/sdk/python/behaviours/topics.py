"""Topics: copies for subscriptions, rules that choose and change them, forwarding."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from tests.sdk.python.bus import (
    Bus,
    Entity,
    nothing_comes,
    numbered,
    partition_of,
    peek_all,
    receive_one,
    take,
    texts,
)
from tests.sdk.python.table import Table

table = Table("topics")


def selecting(bus: Bus, topic: Entity, name: str, rule_filter: object, action: object = None) -> Entity:
    """A subscription with one rule of its own."""
    subscription = bus.subscription(topic, name)
    bus.admin.delete_rule(topic.name, name, "$Default")
    bus.admin.create_rule(topic.name, name, "rule", filter=rule_filter, action=action)
    return subscription


def message(body: str, /, **properties: object) -> ServiceBusMessage:
    """All under one key, so that their order is promised."""
    return ServiceBusMessage(body, application_properties=properties, partition_key="one")


def selected(subscription: Entity) -> list[str]:
    return texts(peek_all(subscription.receiver()))


# Copies


@table.behaviour()
def every_subscription_gets_a_copy(bus: Bus) -> None:
    topic = bus.topic()
    subscriptions = [bus.subscription(topic, name) for name in ("a", "b", "c")]
    topic.send(*numbered(3))
    for subscription in subscriptions:
        assert texts(take(subscription.receiver(), 3)) == ["0", "1", "2"]


@table.behaviour()
def settling_one_copy_leaves_the_others(bus: Bus) -> None:
    topic = bus.topic()
    first, second = bus.subscription(topic, "first"), bus.subscription(topic, "second")
    topic.send(ServiceBusMessage("x" * 1000))
    take(first.receiver(), 1)
    receiver = second.receiver()
    receiver.dead_letter_message(receive_one(receiver), reason="why")
    dead = receive_one(second.dead_letters())
    assert (str(dead), dead.dead_letter_reason) == ("x" * 1000, "why")
    assert peek_all(first.dead_letters()) == []


@table.behaviour()
def without_subscriptions_messages_vanish(bus: Bus) -> None:
    topic = bus.topic()
    topic.send("nobody hears it")
    assert selected(bus.subscription(topic)) == []


@table.behaviour()
def a_later_subscription_gets_later_messages(bus: Bus) -> None:
    topic = bus.topic()
    early = bus.subscription(topic, "early")
    topic.send(message("first"))
    late = bus.subscription(topic, "late")
    topic.send(message("second"))
    assert (selected(early), selected(late)) == (["first", "second"], ["second"])


@table.behaviour(differs="C4")
def copies_stay_in_the_partition_of_their_message(bus: Bus) -> None:
    topic = bus.topic()
    subscriptions = [bus.subscription(topic, name) for name in ("a", "b")]
    topic.send(*[ServiceBusMessage(key, partition_key=key) for key in "abcdefgh"])
    first, second = (
        {str(each): partition_of(each) for each in peek_all(subscription.receiver())}
        for subscription in subscriptions
    )
    assert first == second
    assert (len(set(first.values())) > 1) == bus.partitioned


# Rules


@table.behaviour()
def a_sql_filter(bus: Bus) -> None:
    topic = bus.topic()
    subscription = selecting(bus, topic, "s", SqlRuleFilter("price > 100 AND colour IN ('red', 'blue')"))
    topic.send(
        message("a", price=150, colour="red"),
        message("b", price=150, colour="green"),
        message("c", price=50, colour="blue"),
        message("d", price=100.5, colour="blue"),
        message("e", colour="red"),
    )
    assert selected(subscription) == ["a", "d"]


@table.behaviour()
def a_sql_filter_on_text_and_absence(bus: Bus) -> None:
    topic = bus.topic()
    like = selecting(bus, topic, "like", SqlRuleFilter("name LIKE 'ab%' OR name LIKE '%z'"))
    missing = selecting(bus, topic, "missing", SqlRuleFilter("name IS NULL AND NOT EXISTS(other)"))
    topic.send(
        message("a", name="abc"),
        message("b", name="xyz"),
        message("c", name="mab"),
        message("d"),
        message("e", other=1),
    )
    assert (selected(like), selected(missing)) == (["a", "b"], ["d"])


@table.behaviour()
def a_sql_filter_on_system_properties(bus: Bus) -> None:
    topic = bus.topic()
    subscription = selecting(bus, topic, "s", SqlRuleFilter("sys.Label = 'order' AND sys.CorrelationId LIKE 'c-%'"))
    for name, subject, correlation in (("a", "order", "c-1"), ("b", "order", "d-1"), ("c", "invoice", "c-1")):
        topic.send(ServiceBusMessage(name, subject=subject, correlation_id=correlation, partition_key="one"))
    assert selected(subscription) == ["a"]


@table.behaviour()
def a_sql_filter_with_parameters(bus: Bus) -> None:
    topic = bus.topic()
    subscription = selecting(bus, topic, "s", SqlRuleFilter("region = @region", parameters={"@region": "eu"}))
    topic.send(message("a", region="eu"), message("b", region="us"))
    assert selected(subscription) == ["a"]


@table.behaviour()
def a_correlation_filter(bus: Bus) -> None:
    topic = bus.topic()
    rule = CorrelationRuleFilter(correlation_id="c", label="order", properties={"colour": "red"})
    subscription = selecting(bus, topic, "s", rule)
    for name, subject, colour in (("a", "order", "red"), ("b", "order", "blue"), ("c", "other", "red")):
        topic.send(
            ServiceBusMessage(
                name,
                subject=subject,
                correlation_id="c",
                application_properties={"colour": colour},
                partition_key="one",
            )
        )
    assert selected(subscription) == ["a"]


@table.behaviour()
def true_and_false_filters(bus: Bus) -> None:
    topic = bus.topic()
    everything = selecting(bus, topic, "everything", TrueRuleFilter())
    nothing = selecting(bus, topic, "nothing", FalseRuleFilter())
    topic.send("x")
    assert (selected(everything), selected(nothing)) == (["x"], [])


@table.behaviour()
def a_rules_action_changes_the_copy(bus: Bus) -> None:
    topic = bus.topic()
    action = SqlRuleAction("SET colour = 'green'; REMOVE price; SET sys.Label = 'changed'")
    changed = selecting(bus, topic, "changed", SqlRuleFilter("price > 1"), action)
    untouched = bus.subscription(topic, "untouched")
    topic.send(message("x", price=5, colour="red", kept=1))
    copy, original = receive_one(changed.receiver()), receive_one(untouched.receiver())
    assert copy.subject == "changed"
    assert copy.application_properties == {b"colour": b"green", b"kept": 1, b"RuleName": b"rule"}
    assert original.application_properties == {b"price": 5, b"colour": b"red", b"kept": 1}
    assert original.subject is None


@table.behaviour()
def rules_with_actions_make_copies_of_their_own(bus: Bus) -> None:
    """Matching rules without an action share one copy."""
    topic = bus.topic()
    subscription = bus.subscription(topic)
    bus.admin.create_rule(topic.name, "all", "also", filter=TrueRuleFilter())
    for name in ("one", "two"):
        bus.admin.create_rule(
            topic.name, "all", name, filter=TrueRuleFilter(), action=SqlRuleAction(f"SET by = '{name}'")
        )
    topic.send("x")
    copies = peek_all(subscription.receiver())
    made = [(each.application_properties or {}).get(b"by") for each in copies]
    assert sorted(str(each) for each in made) == ["None", "b'one'", "b'two'"]


@table.behaviour()
def adding_and_removing_rules(bus: Bus) -> None:
    """What was sent before a change stays as it was judged (G9, G10)."""
    topic = bus.topic()
    subscription = selecting(bus, topic, "s", SqlRuleFilter("n = 1"))
    topic.send(message("a", n=1), message("b", n=2))
    bus.admin.create_rule(topic.name, "s", "second", filter=SqlRuleFilter("n = 2"))
    topic.send(message("c", n=1), message("d", n=2))
    bus.admin.delete_rule(topic.name, "s", "rule")
    topic.send(message("e", n=1), message("f", n=2))
    assert selected(subscription) == ["a", "c", "d", "f"]
    assert [rule.name for rule in bus.admin.list_rules(topic.name, "s")] == ["second"]


@table.behaviour()
def rules_that_cannot_be(bus: Bus) -> None:
    topic = bus.topic()
    bus.subscription(topic)
    with pytest.raises(ResourceExistsError):
        bus.admin.create_rule(topic.name, "all", "$Default", filter=TrueRuleFilter())
    for wrong in ("n = ", "n = 1 AND", "sys.Nonsense = 1", "x" * 1025 + " = 1"):
        with pytest.raises(HttpResponseError):
            bus.admin.create_rule(topic.name, "all", "wrong", filter=SqlRuleFilter(wrong))


@table.behaviour()
def a_filter_that_cannot_judge_a_message(bus: Bus) -> None:
    topic = bus.topic()
    loud = bus.subscription(topic, "loud", dead_lettering_on_filter_evaluation_exceptions=True)
    quiet = bus.subscription(topic, "quiet", dead_lettering_on_filter_evaluation_exceptions=False)
    for name in ("loud", "quiet"):
        bus.admin.delete_rule(topic.name, name, "$Default")
        bus.admin.create_rule(topic.name, name, "divides", filter=SqlRuleFilter("1 / n > 0"))
    topic.send(message("x", n=0))
    assert receive_one(loud.dead_letters()).dead_letter_reason
    assert selected(loud) == selected(quiet) == []
    assert peek_all(quiet.dead_letters()) == []


# Subscriptions are queues


@table.behaviour()
def the_dead_letters_of_a_subscription(bus: Bus) -> None:
    topic = bus.topic()
    subscription = bus.subscription(topic, max_delivery_count=1)
    topic.send("x")
    receiver = subscription.receiver()
    receiver.abandon_message(receive_one(receiver))
    assert receive_one(subscription.dead_letters()).dead_letter_reason == "MaxDeliveryCountExceeded"


@table.behaviour()
def a_message_without_a_session_for_a_subscription_with_sessions(bus: Bus) -> None:
    topic = bus.topic()
    subscription = bus.subscription(topic, requires_session=True)
    topic.send("x")
    dead = receive_one(subscription.dead_letters())
    assert dead.dead_letter_reason == "Session ID is null."


@table.behaviour()
def counts_of_a_subscription(bus: Bus) -> None:
    topic = bus.topic()
    subscription = bus.subscription(topic)
    topic.send(*[str(index) for index in range(5)])
    take(subscription.receiver(), 2)
    assert len(peek_all(subscription.receiver())) == 3
    runtime = subscription.runtime()
    assert (runtime.active_message_count, runtime.dead_letter_message_count) == (3, 0)
    assert bus.admin.get_topic_runtime_properties(topic.name).subscription_count == 1


# Forwarding


@table.behaviour()
def a_queue_forwards(bus: Bus) -> None:
    target = bus.queue()
    source = bus.queue(forward_to=target.name)
    source.send(*numbered(5, message_id="m"))
    messages = take(target.receiver(), 5)
    assert texts(messages) == ["0", "1", "2", "3", "4"]
    assert {each.message_id for each in messages} == {"m"}
    assert {partition_of(each) for each in messages} == {partition_of(messages[0])}


@table.behaviour()
def a_subscription_forwards(bus: Bus) -> None:
    target, topic = bus.queue(), bus.topic()
    bus.subscription(topic, forward_to=target.name)
    topic.send(*[str(index) for index in range(10)])
    assert sorted(texts(take(target.receiver(), 10))) == [str(index) for index in range(10)]


@table.behaviour(differs="E1")
def forwarding_to_the_other_kind_of_entity(bus: Bus) -> None:
    """From a partitioned entity to a plain one, and the other way round (E1)."""
    target = bus.queue(enable_partitioning=not bus.partitioned)
    source = bus.queue(forward_to=target.name)
    source.send(*[str(index) for index in range(20)])
    assert sorted(texts(take(target.receiver(), 20)), key=int) == [str(index) for index in range(20)]


@table.behaviour()
def the_key_chooses_the_partition_at_the_destination(bus: Bus) -> None:
    """The same as of a message that was sent there (E2)."""
    target = bus.queue()
    source = bus.queue(forward_to=target.name)
    keys = list("abcdef")
    source.send(*[ServiceBusMessage(key, partition_key=key) for key in keys])
    forwarded = {str(each): partition_of(each) for each in take(target.receiver(), 6)}
    target.send(*[ServiceBusMessage(key, partition_key=key) for key in keys])
    assert {str(each): partition_of(each) for each in take(target.receiver(), 6)} == forwarded


@table.behaviour()
def a_chain_of_forwards(bus: Bus) -> None:
    last = bus.queue()
    names = [last.name]
    for _ in range(3):
        names.append(bus.queue(forward_to=names[-1]).name)
    Entity(bus, names[-1]).send("x")
    assert texts(take(last.receiver(), 1)) == ["x"]


@table.behaviour()
def nobody_receives_from_a_forwarding_queue(bus: Bus) -> None:
    source = bus.queue(forward_to=bus.queue().name)
    with pytest.raises(ServiceBusError, match=r"(?i)forward"):
        source.receiver(bus.client_with(retry_total=0))


@table.behaviour()
def a_subscription_of_a_deleted_rule_gets_nothing(bus: Bus) -> None:
    topic = bus.topic()
    subscription = bus.subscription(topic)
    bus.admin.delete_rule(topic.name, "all", "$Default")
    topic.send("x")
    assert nothing_comes(subscription.receiver())


@table.behaviour()
def a_chain_that_is_too_long(bus: Bus) -> None:
    """After four hops a message is put aside where it was, in the dead letters of the transfer."""
    last = bus.queue()
    names = [last.name]
    for _ in range(5):
        names.append(bus.queue(forward_to=names[-1]).name)
    Entity(bus, names[-1]).send("x")
    (message,) = take(Entity(bus, names[1]).receiver(sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER), 1)
    assert (str(message), message.dead_letter_reason) == ("x", "MaxTransferHopCountExceeded")
    assert peek_all(last.receiver()) == []
