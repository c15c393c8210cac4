"""Coverage-guided fuzzing of one target: `python -m tests.fuzz.atheris_target NAME CORPUS -runs=N`. Needs atheris."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["polybus"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
