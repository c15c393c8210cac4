"""Coverage-guided fuzzing of a connection: `python -m tests.fuzz.atheris_connection CORPUS -runs=N`.

Needs atheris. The first byte chooses where the connection is when the input begins, the second how it is cut.
The invariant: any bytes give events, at most one end, and output that is well formed.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["polybus"]):
    from tests.fuzz.invariants import check_connection


def main() -> None:
    atheris.Setup(sys.argv, check_connection)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
