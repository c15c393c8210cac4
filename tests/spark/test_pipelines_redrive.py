"""Dead letters that go back through a real bus: to their origin, elsewhere, to one subscription; repaired; cut off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from polybus.pipelines.runner import PipelineFailed
from tests.sdk.python.bus import text
from tests.spark.kit import Kit
from tests.spark.redrive_kit import dead_letter, figures, messages, run_pipeline

DEAD = "/$DeadLetterQueue"


def test_a_dry_run_writes_the_table_with_reasons_and_changes_nothing(kit: Kit) -> None:
    queue = kit.queue()
    kit.send(queue, messages(7))
    dead_letter(kit, queue, 4, "bad tenant")
    dead_letter(kit, queue, 3, "too old")
    before = sorted(kit.read(queue + DEAD).select("sequence_number", "position").collect())
    said: list[str] = []
    table = str(kit.folder / "table")
    ran = run_pipeline(
        kit, said, kind="redrive", **{"from": queue + DEAD}, where="dead_letter_reason = 'too old'", table=table
    )
    assert figures(ran) == {"letters": 7, "chosen": 3, "moved": 0, "planned": 3}
    assert [line for line in said if "bad tenant" in line or "too old" in line] == [
        f"p: 4 dead letters of {queue}: bad tenant",
        f"p: 3 dead letters of {queue}: too old",
    ]
    letters = kit.spark.read.parquet(f"{table}/letters")
    reasons = letters.groupBy("dead_letter_reason", "dead_letter_description", "dead_letter_source").count().collect()
    assert {tuple(row) for row in reasons} == {
        ("bad tenant", "it broke", queue, 4),
        ("too old", "it broke", queue, 3),
    }
    outcomes = kit.spark.read.parquet(f"{table}/outcomes").collect()
    assert {(row.outcome, row.destination) for row in outcomes} == {("planned", queue)}
    assert sorted(kit.read(queue + DEAD).select("sequence_number", "position").collect()) == before
    assert kit.read(queue).count() == 0


def test_letters_go_back_to_their_origin_repaired_with_everything_else_as_it_was(kit: Kit) -> None:
    # The ids are known here: whoever is moved back is no duplicate of its own first life.
    queue = kit.queue(requires_duplicate_detection=True)
    sent = messages(10)
    for number, redrives in ((4, 1), (5, 2)):
        sent[number].application_properties["x-redrive-count"] = redrives
    kit.send(queue, sent)
    dead_letter(kit, queue, 10)
    ran = run_pipeline(
        kit,
        kind="redrive",
        **{"from": queue + DEAD},  # type: ignore[arg-type]
        mode="resubmit",
        where="cast(properties['n'] as int) < 6",
        set={
            "body": "if(properties['even'] = 'true', concat('fixed ', cast(body as string)), cast(body as string))",
            "properties.tenant": "6",
            "properties.n": "cast(properties['n'] as int) + 100",
        },
        maxRedrives=2,
    )
    # The sixth was redriven often enough.
    assert figures(ran) == {"letters": 10, "chosen": 5, "moved": 5}
    received = kit.drain(queue, 5)
    assert {text(each) for each in received} == {
        *(f"fixed body {number}" for number in (0, 2, 4)),
        *(f"body {number}" for number in (1, 3)),
    }
    for each in received:
        number = int(text(each).split()[-1])
        assert (each.message_id, each.partition_key, each.subject) == (f"id {number}", f"key {number % 5}", "orders")
        assert each.application_properties == {
            b"n": number + 100,
            b"even": number % 2 == 0,
            b"tenant": 6,
            b"x-redrive-count": 2 if number == 4 else 1,
        }
    assert kit.read(queue + DEAD).count() == 5


def test_letters_of_a_subscription_go_back_to_it_alone(kit: Kit) -> None:
    topic = kit.topic("one")
    kit.admin.create_subscription(topic, "two")
    with kit.sdk.get_topic_sender(topic) as sender:
        for message in messages(3):
            sender.send_messages(message)
    dead_letter(kit, topic, 3, subscription="one")
    origin = f"{topic}/Subscriptions/one"
    ran = run_pipeline(kit, kind="redrive", **{"from": origin + DEAD}, mode="resubmit")  # type: ignore[arg-type]
    assert figures(ran)["moved"] == 3
    with kit.sdk.get_subscription_receiver(topic, "one") as receiver:
        found: list[str] = []
        while len(found) < 3:
            for message in receiver.receive_messages(max_message_count=3, max_wait_time=10):
                receiver.complete_message(message)
                found.append(text(message))
    assert sorted(found) == ["body 0", "body 1", "body 2"]
    assert kit.read(f"{topic}/Subscriptions/two").count() == 3
    assert kit.read(origin + DEAD).count() == 0


def test_a_query_sends_letters_to_other_places_and_locked_ones_stay(kit: Kit) -> None:
    queue, other, third = kit.queue(), kit.queue("-other"), kit.queue("-third")
    kit.send(queue, messages(6))
    dead_letter(kit, queue, 6)
    sql = (
        f"select sequence_number, upper(cast(body as string)) as body, if(properties['n'] = '5', '{third}', null) as"
        " destination from letters where properties['n'] > 1"
    )
    with kit.sdk.get_queue_receiver(queue, sub_queue="deadletter") as receiver:
        held = receiver.receive_messages(max_message_count=1, max_wait_time=10)
        said: list[str] = []
        fields = {"kind": "redrive", "from": queue + DEAD, "to": other, "sql": sql, "mode": "resubmit"}
        ran = run_pipeline(kit, said, **fields)
        number = held[0].application_properties[b"n"]
        receiver.abandon_message(held[0])
    locked = 1 if number > 1 else 0
    assert figures(ran) == {"letters": 6, "chosen": 4, "moved": 4 - locked, **({"locked": 1} if locked else {})}
    run_pipeline(kit, **fields)  # type: ignore[arg-type]
    assert sorted(text(each) for each in kit.drain(other, 3)) == ["BODY 2", "BODY 3", "BODY 4"]
    assert [text(each) for each in kit.drain(third, 1)] == ["BODY 5"]
    assert kit.read(queue + DEAD).count() == 2


def test_letters_that_were_forwarded_go_back_to_where_they_died(kit: Kit) -> None:
    graves = kit.queue("-graves")
    queue = kit.queue(forward_dead_lettered_messages_to=graves)
    kit.send(graves, messages(1, first=9))
    kit.send(queue, messages(3))
    dead_letter(kit, queue, 3)
    with kit.sdk.get_queue_receiver(graves) as receiver:
        held = []
        while len(held) < 4:
            held += receiver.receive_messages(max_message_count=4 - len(held), max_wait_time=10)
        for message in held:
            receiver.abandon_message(message)
    ran = run_pipeline(kit, kind="redrive", **{"from": graves}, mode="resubmit")  # type: ignore[arg-type]
    # What was sent there and has never died is no dead letter.
    assert figures(ran) == {"letters": 3, "chosen": 3, "moved": 3}
    assert sorted(text(each) for each in kit.drain(queue, 3)) == ["body 0", "body 1", "body 2"]
    assert [bytes(row.body) for row in kit.read(graves).collect()] == [b"body 9"]


def test_a_query_that_gives_a_letter_twice_moves_nothing(kit: Kit) -> None:
    queue = kit.queue()
    kit.send(queue, messages(2))
    dead_letter(kit, queue, 2)
    sql = "select sequence_number from letters union all select sequence_number from letters"
    with pytest.raises(PipelineFailed, match="2 letters more than once"):
        run_pipeline(kit, kind="redrive", **{"from": queue + DEAD}, mode="resubmit", sql=sql)  # type: ignore[arg-type]
    assert kit.read(queue + DEAD).count() == 2


def test_a_run_that_is_killed_in_the_middle_and_repeated_loses_and_doubles_nothing(kit: Kit) -> None:
    queue, target = kit.queue(), kit.queue("-to")
    kit.fill(queue, 200)
    dead_letter(kit, queue, 200)
    fields = {"kind": "redrive", "from": queue + DEAD, "to": target, "mode": "resubmit"}
    file = kit.folder / "pipelines.yml"
    document = {
        "bus": {"connectionStringEnv": "BUS"},
        "checkpoints": "state",
        "pipelines": [{"name": "p", **fields, "rate": "20/s", "set": {"body": "concat('again ', body)"}}],
    }
    file.write_text(yaml.safe_dump(document))
    _killed_when_the_first_arrive(kit, file, target)
    left = kit.read(queue + DEAD).count()
    assert 0 < left < 200
    run_pipeline(kit, **fields, set={"body": "concat('again ', body)"})  # type: ignore[arg-type]
    assert sorted(text(each) for each in kit.drain(target, 200)) == sorted(f"again message {n}" for n in range(200))
    assert kit.read(target).count() == 0
    assert kit.read(queue + DEAD).count() == 0


def _killed_when_the_first_arrive(kit: Kit, file: Path, target: str) -> None:
    command = [sys.executable, "-m", "polybus", "pipelines", "run", str(file), "--once"]
    child = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "BUS": kit.server.connection_string},
        start_new_session=True,
    )
    try:
        with kit.sdk.get_queue_receiver(target) as receiver:
            found = receiver.receive_messages(max_message_count=1, max_wait_time=300)
            assert len(found) == 1
            receiver.abandon_message(found[0])
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
