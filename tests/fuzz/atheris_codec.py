"""Coverage-guided fuzzing of the codec: `python -m tests.fuzz.atheris_codec CORPUS -runs=N`. Needs atheris.

The invariant: any bytes are a value that survives a round trip, or one decode error.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["polybus"]):
    from tests.fuzz.invariants import check_codec


def main() -> None:
    atheris.Setup(sys.argv, check_codec)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
