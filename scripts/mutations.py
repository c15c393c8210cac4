"""Takes one rule at a time out of a copy of the tree and runs the test that must notice.

`python scripts/mutations.py [--only WORD] [--again]`. The mutations are in tests/mutations.toml, each with the ids of
docs/requirements.md that it takes away and the tests that fail without it. What was noticed is remembered in
.mutations.json for as long as neither the rule, its file nor its tests change, so that a run goes on where it was broken
off; `--again` forgets. Exit code 1 where a mutation was not noticed, or its text is no longer there once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "mutations.toml"
NOTICED = ROOT / ".mutations.json"


@dataclass(frozen=True)
class Mutation:
    """A rule taken away: `old` becomes `new` in a file."""

    rule: str
    file: str
    old: str
    new: str
    test: str
    ids: tuple[str, ...] = ()

    def is_there(self, root: Path = ROOT) -> bool:
        return (root / self.file).read_text(encoding="utf-8").count(self.old) == 1

    def fingerprint(self) -> str:
        """Changes with the rule, its file and its tests."""
        parts = [self.rule, self.old, self.new, self.test, (ROOT / self.file).read_text(encoding="utf-8")]
        for word in self.test.split():
            path = ROOT / word.partition("::")[0]
            if path.is_file():
                parts.append(path.read_text(encoding="utf-8"))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def mutations() -> list[Mutation]:
    rows = tomllib.loads(LIST.read_text(encoding="utf-8"))["mutation"]
    return [Mutation(**{**row, "ids": tuple(row.get("ids", ()))}) for row in rows]


def copied(folder: Path) -> Path:
    """The tree as it lies here, so that it can be worked in meanwhile."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    return folder


def passes(tree: Path, test: str) -> int:
    """The exit code of pytest over a tree."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *test.split()]
    environment = {**os.environ, "POLYBUS_BUILD": "plain", "PYTHONPATH": str(tree / "src")}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False).returncode


def noticed(mutation: Mutation, tree: Path) -> bool:
    """Whether the test fails without the rule, and the text of the rule is still where it was."""
    if not mutation.is_there(tree):
        print(f"stale: {mutation.rule}: {mutation.old!r} is not in {mutation.file} once", flush=True)
        return False
    path = tree / mutation.file
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        code = passes(tree, mutation.test)
    finally:
        path.write_text(before, encoding="utf-8")
    print(f"{'noticed' if code == 1 else f'NOT NOTICED (pytest: {code})'}: {mutation.rule}", flush=True)
    return code == 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="WORD", help="ids or words of the rules to take away")
    parser.add_argument("--again", action="store_true", help="also those that were noticed before")
    options = parser.parse_args()
    word = options.only.lower()
    chosen = [each for each in mutations() if word in each.rule.lower() or word.upper() in each.ids]
    known = json.loads(NOTICED.read_text()) if NOTICED.exists() and not options.again else {}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        for mutation in chosen:
            if known.get(mutation.rule) == mutation.fingerprint():
                continue
            if noticed(mutation, tree):
                known[mutation.rule] = mutation.fingerprint()
                NOTICED.write_text(json.dumps(known, indent=1))
            else:
                failed += 1
    print(f"{len(chosen) - failed} of {len(chosen)} noticed")
    return 0 if chosen and not failed else 1


if __name__ == "__main__":
    raise SystemExit(main())
