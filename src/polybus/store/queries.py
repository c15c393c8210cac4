"""Reads `queries.sql`: statements by name, each with the store's schema filled in."""

from __future__ import annotations

from importlib.resources import files

from psycopg import sql

_NAME = "-- name:"


def load_queries(schema: str) -> dict[str, sql.Composed]:
    text = files("polybus.store").joinpath("queries.sql").read_text(encoding="utf-8")
    return {
        name: sql.SQL(statement).format(schema=sql.Identifier(schema))
        for name, statement in _statements(text).items()
    }


def _statements(text: str) -> dict[str, str]:
    statements: dict[str, str] = {}
    for part in text.split(_NAME)[1:]:
        name, _, body = part.partition("\n")
        # Comments are for the reader of the file; a `%` or a brace in one would be taken for a parameter.
        lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")]
        statements[name.strip()] = "\n".join(lines)
    return statements
