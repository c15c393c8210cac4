"""`polybus demo` as a person and a script run it: no terminal, a verdict, an exit code."""

from __future__ import annotations

import json
import subprocess
import sys


def test_the_demo_loses_a_store_and_no_message() -> None:
    command = [sys.executable, "-m", "polybus", "demo", "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    outage = shown["store lost"]
    assert shown["ok"] is True
    assert shown["verdict"]["clean"] is True
    assert shown["spread, unkeyed"] == [10] * 16
    assert len(outage["missing partitions"]) == 4
    assert outage["of these accepted"] == outage["sends without a key"] > 80
    assert outage["refused with"] == ["ServiceBusServerBusyError"]
    assert outage["refused"] == outage["keyed sends refused"] > 0
    assert outage["rerouted"] > 0
    assert shown["received"]["expected"] == shown["received"]["received and completed"]
    assert shown["received"]["expected"] == shown["verdict"]["report"]["acknowledged"]
