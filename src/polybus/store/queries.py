"""Reads files of statements by name, each with the store's schema filled in."""

from __future__ import annotations

from importlib.resources import files

from psycopg import sql

_NAME = "-- name:"


def load_queries(schema: str, file: str = "queries.sql") -> dict[str, sql.Composed]:
    text = files("polybus.store").joinpath(file).read_text(encoding="utf-8")
    names = {"schema": sql.Identifier(schema), "channel": sql.Identifier(f"polybus_{schema}"[:63])}
    return {name: sql.SQL(statement).format(**names) for name, statement in _statements(text).items()}


def _statements(text: str) -> dict[str, str]:
    statements: dict[str, str] = {}
    for part in text.split(_NAME)[1:]:
        name, _, body = part.partition("\n")
        # Comments are for the reader of the file; a `%` or a brace in one would be taken for a parameter.
        lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")]
        statements[name.strip()] = "\n".join(lines)
    return statements
