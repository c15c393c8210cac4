"""Takes one rule at a time out of the code and runs the test that must notice: `python scripts/mutations.py [WORD]`.

Each mutation is kept here with the test that fails because of it. The tree must be clean; every file is put back as it
was. Exit code 1 where a mutation was not noticed, or its text is no longer there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "polybus"


@dataclass(frozen=True)
class Mutation:
    """A rule taken away: `old` becomes `new` in a file."""

    rule: str
    file: str
    old: str
    new: str
    test: str


MUTATIONS = (
    Mutation(
        "F1: overload is judged for each partition's store",
        "hosting/partition_host.py",
        "if store.overloaded:",
        "if False:",
        "tests/simulation/test_overload_step_by_step.py",
    ),
    Mutation(
        "C5: nothing found is not nothing there while a partition cannot be asked",
        "namespace/delivery/entity_verbs.py",
        "if not found and unasked is not None:",
        "if False:",
        "tests/system/node/test_hanging_reads.py -k scan",
    ),
    Mutation(
        "A2: reads that hang fence a store",
        "hosting/store_host.py",
        "            self._host.read_failed(error, self._opening)\n",
        "",
        "tests/system/node/test_hanging_reads.py -k scan",
    ),
    Mutation(
        "forwarding takes the right to send to the destination",
        "gateway/atom/call.py",
        "elif path != _forwards_to(before, attribute):",
        "elif False:",
        "tests/system/http/test_authorization.py -k manage_on_one_entity",
    ),
    Mutation(
        "a later minor version of the format is refused",
        "store/format.py",
        " or self.minor > FORMAT_MINOR:",
        ":",
        "tests/unit/store/test_store_format.py",
    ),
)


def noticed(mutation: Mutation) -> bool:
    """Whether the test fails without the rule, and the text of the rule is still where it was."""
    path = SOURCES / mutation.file
    before = path.read_text()
    if before.count(mutation.old) != 1:
        print(f"stale: {mutation.rule}: {mutation.old!r} is not in {mutation.file} once")
        return False
    path.write_text(before.replace(mutation.old, mutation.new))
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-x", *mutation.test.split()]
        environment = {**os.environ, "POLYBUS_BUILD": "plain"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    finally:
        path.write_text(before)
    print(f"{'noticed' if done.returncode == 1 else 'NOT NOTICED'}: {mutation.rule}", flush=True)
    return done.returncode == 1


def main() -> int:
    word = sys.argv[1].lower() if len(sys.argv) > 1 else ""
    chosen = [mutation for mutation in MUTATIONS if word in mutation.rule.lower()]
    results = [noticed(mutation) for mutation in chosen]
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
