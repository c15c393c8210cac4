import pytest

from polybus.message.message import build
from polybus.rules import CorrelationFilter, SqlFilter
from tests.unit.partition.kit import ALL, add_rule, body_of, main, topic


def test_every_subscription_that_wants_it_gets_a_copy_with_a_number_of_its_own() -> None:
    solo = topic(1, 2, index=1)
    add_rule(solo, 2, "more", CorrelationFilter(label="red"))
    solo.settings.rules.remove(2, "$Default")
    solo.send(b"1")
    solo.send(b"2", subject="red")
    base = 1 << 48
    assert [(entry.sequence, entry.original, body_of(entry)) for entry in solo.take_all(main(1))] == [
        (base + 1, base + 1, b"1"),
        (base + 2, base + 2, b"2"),
    ]
    assert [(entry.sequence, entry.original) for entry in solo.take_all(main(2))] == [(base + 1, base + 2)]


def test_a_message_that_nobody_wants_is_accepted_and_gone_and_its_number_is_used_up() -> None:
    solo = topic(1)
    solo.settings.rules.remove(1, "$Default")
    assert solo.send() == 1
    assert (solo.tables(), solo.broker.size) == ("", 0)
    solo.crash()
    assert solo.send() == 2


def test_numbers_of_copies_are_not_used_again_after_a_crash() -> None:
    solo = topic(1)
    add_rule(solo, 1, "broken", SqlFilter("1/x = 1"))
    solo.settings.rules.remove(1, "$Default")
    solo.send(application={"x": 0})
    solo.crash()
    solo.send(application={"x": 0})
    assert solo.numbers(main(1) + 1) == [1, 2]


def test_rules_with_actions_make_copies_of_their_own_that_say_which_rule() -> None:
    solo = topic(1)
    add_rule(solo, 1, "mark", ALL, "SET color = 'red'; SET sys.Label = 'new'; REMOVE old")
    add_rule(solo, 1, "again", ALL, "SET sys.TimeToLive = p(ttl)")
    solo.send(b"1", application={"old": 1, "kept": 2})
    plain, marked, again = solo.take_all(main(1))
    assert plain.overlay is None
    assert marked.overlay is not None
    assert marked.overlay.application["RuleName"] == "mark"
    assert marked.overlay.application["color"] == "red"
    assert marked.overlay.fields == {3: "new"}
    assert again.overlay is not None
    assert again.overlay.application == {"RuleName": "again"}
    solo.crash()
    restored = solo.take_all(main(1))[1].overlay
    assert restored is not None
    assert (restored.application, restored.fields) == (marked.overlay.application, marked.overlay.fields)


@pytest.mark.parametrize("target", ["user.more", "sys.Label"])
def test_an_action_that_makes_the_properties_too_large_kills_its_copy(target: str) -> None:
    """The copy is as its sender wrote it: a rule must not fill the dead letters with what it may not send."""
    solo = topic(1)
    solo.settings.rules.remove(1, "$Default")
    add_rule(solo, 1, "grows", ALL, f"SET {target} = own + own")
    solo.send(b"1", application={"own": "x" * 30_000})
    assert solo.take_all(main(1)) == []
    (dead,) = solo.take_all(main(1) + 1)
    assert dead.overlay is not None
    assert dead.overlay.application["DeadLetterReason"] == "HeaderSizeExceeded"
    assert len(dead.overlay.to_bytes()) < 1_000


def test_an_action_may_replace_a_large_property() -> None:
    solo = topic(1)
    solo.settings.rules.remove(1, "$Default")
    add_rule(solo, 1, "replaces", ALL, "SET own = 'y' + own")
    solo.send(b"1", application={"own": "x" * 40_000})
    (copy,) = solo.take_all(main(1))
    assert copy.overlay is not None
    assert copy.overlay.application["own"] == "y" + "x" * 40_000


def test_an_action_can_give_its_copy_a_session() -> None:
    solo = topic(1)
    solo.settings.subscriptions[1].requires_session = True
    solo.settings.rules.remove(1, "$Default")
    add_rule(solo, 1, "session", ALL, "SET sys.SessionId = 'a'")
    solo.crash()
    solo.send(b"1")
    session = solo.accept_next(log_id=main(1))
    assert session is not None
    assert session.id == "a"
    assert [peeked.marks.sequence for peeked in solo.peek(session="a", log_id=main(1))] == [1]
    assert solo.peek(session="b", log_id=main(1)) == []


def test_a_copy_without_a_session_id_is_dead_where_sessions_are_needed() -> None:
    solo = topic(1, 2)
    solo.settings.subscriptions[1].requires_session = True
    solo.crash()
    solo.send(b"x" * 1000)
    dead = solo.get(main(1) + 1)
    assert dead.overlay is not None
    assert dead.overlay.application["DeadLetterReason"] == "Session ID is null."
    assert dead.overlay.dead_letter_source == "t/Subscriptions/s1"
    assert body_of(solo.get(main(2))) == b"x" * 1000


def test_a_rule_that_fails_makes_a_dead_letter_that_says_why() -> None:
    solo = topic(1)
    add_rule(solo, 1, "broken", SqlFilter("1/x = 1"))
    solo.send(b"1", application={"x": 0})
    assert body_of(solo.get(main(1))) == b"1"
    dead = solo.get(main(1) + 1)
    assert dead.overlay is not None
    assert dead.overlay.application == {
        "DeadLetterReason": "DivideByZeroException",
        "DeadLetterErrorDescription": "Attempted to divide by zero.",
    }


def test_or_none_where_the_subscription_does_not_want_them() -> None:
    solo = topic(1)
    solo.settings.subscriptions[1].dead_letter_filter_errors = False
    add_rule(solo, 1, "broken", SqlFilter("1/x = 1"))
    solo.send(application={"x": 0})
    assert (solo.log(main(1)).active, solo.log(main(1) + 1).active) == (1, 0)


def test_dead_copies_are_forwarded_where_the_subscription_forwards_its_dead_letters() -> None:
    solo = topic(1)
    solo.settings.subscriptions[1].forward_dead_letters_to = "graveyard"
    solo.routes["graveyard"] = (9, 0)
    solo.settings.rules.remove(1, "$Default")
    add_rule(solo, 1, "broken", SqlFilter("1/x = 1"))
    solo.send(application={"x": 0})
    assert (solo.log(main(1) + 1).active, solo.broker.transfers) == (0, 1)


def test_rules_can_ask_for_new_ids_and_no_two_are_the_same() -> None:
    solo = topic(1)
    solo.settings.rules.remove(1, "$Default")
    add_rule(solo, 1, "id", ALL, "SET id = newid()")
    solo.send()
    solo.send()
    ids = [entry.overlay.application["id"] for entry in solo.take_all(main(1)) if entry.overlay is not None]
    assert len(set(map(str, ids))) == 2


@pytest.mark.parametrize("stamp", [-(1 << 63), (1 << 63) - 1])
def test_times_that_no_calendar_has_do_not_harm_the_rules(stamp: int) -> None:
    from polybus.amqp.types import Timestamp

    solo = topic(1)
    add_rule(solo, 1, "sql", SqlFilter("at > sys.EnqueuedTimeUtc"), "SET copy = at")
    solo.send_all([build(b"", application={"at": Timestamp(stamp)}, ttl_ms=1 << 61)])
    assert len(solo.take_all(main(1))) == (2 if stamp > 0 else 1)


def test_a_subscription_that_is_gone_gets_nothing() -> None:
    solo = topic(1, 2)
    del solo.settings.subscriptions[2]
    solo.send()
    assert solo.log(main(1)).active == 1
