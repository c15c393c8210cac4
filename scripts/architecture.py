"""Draws the pictures of docs/architecture.md from the code: rooms, ways of a message, state machines.

Run it after moving code; `--check` only says whether the pictures are true. The rooms and their arrows come from the
imports, the ways from watching a bus at work (tests/support/walks.py), the state machines from their tables.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    os.environ["POLYBUS_BUILD"] = "plain"  # Compiled functions cannot be watched.
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.support.walks import Walk, walks  # noqa: E402

from polybus.amqp import states  # noqa: E402
from polybus.pipelines import supervised  # noqa: E402

PAGE = ROOT / "docs" / "architecture.md"
SOURCES = ROOT / "src" / "polybus"
BLOCK = re.compile(r"(<!-- drawn: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
EVERYBODYS = {"errors", "limits", "clock", "rows", "numbering", "hashing", "promise", "turns", "asyncio_bridge"}
"""What nearly every room knows: an arrow to it says nothing."""
NO_ROOMS = {"_compiled", "__init__", "__main__"}
LOOP = "event loop"
SLACK = 3


# Rooms


def imported(path: Path) -> Iterator[str]:
    """The rooms that a file imports when it runs; what is only there for types does not count."""
    for node in running(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            joined = [f"{node.module}.{alias.name}" for alias in node.names]
            names = joined if node.module == "polybus" else [node.module]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("polybus."))


def running(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from running(node)


def room_edges() -> set[tuple[str, str]]:
    rooms = {path.name.removesuffix(".py") for path in SOURCES.iterdir() if path.suffix == ".py" or path.is_dir()}
    found = set()
    for path in SOURCES.rglob("*.py"):
        room = path.relative_to(SOURCES).parts[0].removesuffix(".py")
        found |= {(room, other) for other in imported(path) if other in rooms and other != room}
    return {(a, b) for a, b in found if not {a, b} & (EVERYBODYS | NO_ROOMS)}


def without_detours(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The arrows that are needed to see who knows whom: one that a longer way replaces is left out."""
    kept = set(edges)
    for edge in sorted(edges):
        if reachable(edge[0], kept - {edge}, edge[1]):
            kept.remove(edge)
    return kept


def reachable(start: str, edges: set[tuple[str, str]], goal: str) -> bool:
    seen, ahead = {start}, [start]
    while ahead:
        here = ahead.pop()
        for a, b in edges:
            if a == here and b not in seen:
                seen.add(b)
                ahead.append(b)
    return goal in seen


def rooms() -> str:
    lines = [f"    {a} --> {b}" for a, b in sorted(without_detours(room_edges()))]
    return "\n".join(["flowchart TD", *lines])


# Ways


def place(file: str) -> str:
    """The participant that a file belongs to: its room, and the protocol inside of the gateway."""
    parts = file.split("/")
    if len(parts) == 1 or not file:
        return LOOP
    return "/".join(parts[:2]) if parts[0] == "gateway" and len(parts) > 2 else parts[0]


def way(walk: Walk) -> str:
    """Calls from room to room in their order, each function once."""
    arrows: dict[tuple[str, str, str], None] = {}
    for call in walk.calls:
        caller, callee = place(call.caller), place(call.file)
        if caller != callee and callee != LOOP and not call.function.startswith("__"):
            arrows[(caller, callee, f"{Path(call.file).stem}.{call.function}")] = None
    names = {name: re.sub(r"\W", "_", name) for arrow in arrows for name in arrow[:2]}
    lines = [f"    participant {short} as {name}" for name, short in names.items()]
    lines += [f"    {names[caller]}->>{names[callee]}: {text}" for caller, callee, text in arrows]
    return "\n".join(["sequenceDiagram", *lines])


def sizes(seen: dict[str, Walk]) -> str:
    lines = ["| way | files | functions |", "| --- | --- | --- |"]
    lines += [f"| {name} | {len(walk.files)} | {len(walk.functions)} |" for name, walk in sorted(seen.items())]
    return "\n".join(lines)


# State machines


def pipeline_states() -> str:
    table = {(state.value, given): ("", after.value) for (state, given), after in supervised.MOVES.items()}
    return states.mermaid(table).replace(" / \n", "\n")


def drawings() -> dict[str, str]:
    """Each picture by the name of its block."""
    seen = walks()
    drawn = {f"state machine of a {name}": text for name, text in states.diagrams().items()}
    drawn["state machine of a pipeline"] = pipeline_states()
    drawn["rooms"] = rooms()
    drawn |= {f"way of a {name}": way(walk) for name, walk in seen.items()}
    return {name: f"```mermaid\n{text.rstrip()}\n```" for name, text in drawn.items()} | {"sizes": sizes(seen)}


def redrawn(page: str, drawn: dict[str, str]) -> str:
    def fill(block: re.Match[str]) -> str:
        return f"{block[1]}{drawn[block[2]]}\n{block[3]}"

    return BLOCK.sub(fill, page)


def out_of_date(page: str, drawn: dict[str, str]) -> list[str]:
    """The pictures that are no longer true. The order of what happens on two threads is not looked at."""
    there = {block[2]: block[0] for block in BLOCK.finditer(page)}
    wrong = [name for name in there if name not in drawn]
    for name, text in drawn.items():
        lines = there.get(name, "").splitlines()[1:-1]
        if numbers_apart(lines, text) if name == "sizes" else sorted(lines) != sorted(text.splitlines()):
            wrong.append(name)
    return wrong


def numbers_apart(lines: list[str], text: str) -> bool:
    """Whether counts differ by more than what a busy machine makes of them."""
    there, now = ([int(number) for number in re.findall(r"\d+", each)] for each in ("\n".join(lines), text))
    return len(there) != len(now) or any(
        abs(a - b) > SLACK + b * SLACK // 100 for a, b in zip(there, now, strict=True)
    )


def main() -> int:
    page, drawn = PAGE.read_text(encoding="utf-8"), drawings()
    if "--check" in sys.argv:
        wrong = out_of_date(page, drawn)
        print("\n".join(f"out of date: {name}" for name in wrong) or "the pictures are true")
        return 1 if wrong else 0
    PAGE.write_text(redrawn(page, drawn), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
