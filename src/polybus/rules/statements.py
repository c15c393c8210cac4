"""Text to tree for SQL actions: a list of SET and REMOVE (docs/protocol/rules.md#actions)."""

from __future__ import annotations

from collections.abc import Mapping

from polybus.limits import ACTION_STATEMENTS
from polybus.rules import tree
from polybus.rules.lexer import END, NAME, wrong
from polybus.rules.parser import Parser
from polybus.rules.tree import Statement
from polybus.rules.values import Value
from polybus.rules.view import SETTABLE_PROPERTIES


def parse_action(text: str, parameters: Mapping[str, Value]) -> list[Statement]:
    """The statements of a SQL action, one at least; RuleSyntaxError says the column and what was expected."""
    return _StatementParser(text, parameters).statements()


class _StatementParser(Parser):
    def statements(self) -> list[Statement]:
        parsed = [self._statement()]
        while self.token.kind != END:
            if len(parsed) == ACTION_STATEMENTS:
                raise self.wrong(f"at most {ACTION_STATEMENTS} statements")
            parsed.append(self._statement())
        return parsed

    def _statement(self) -> Statement:
        token = self.take()
        # Only ASCII, as for keywords: the capital of the long s, for one, is a plain S.
        word = token.text.upper() if token.kind == NAME and token.text.isascii() else ""
        if word not in ("SET", "REMOVE"):
            raise wrong(token.position, str(token), "SET or REMOVE")
        target = _changeable(self.read_property(self.take()))
        if word == "REMOVE":
            parsed: Statement = tree.Remove(target)
        else:
            self.expect("=", "'='")
            parsed = tree.Set(target, self.value(0))
        self._separator(parsed)
        return parsed

    def _separator(self, parsed: Statement) -> None:
        """`;` may end a statement and `,` stand between two; neither is needed (docs/protocol/rules.md#actions)."""
        ended = self.skip(";")
        if self.skip(","):
            if self.token.kind == END:
                raise self.wrong("SET or REMOVE")
        elif not ended and self.token.kind not in (NAME, END):
            operator = "an operator, " if isinstance(parsed, tree.Set) else ""
            raise self.wrong(f"{operator}';', ',', SET, REMOVE or the end")


def _changeable(target: tree.Property) -> tree.Property:
    if target.system and target.name not in SETTABLE_PROPERTIES:
        raise wrong(target.position, f"the read-only property 'sys.{target.name}'", "one that can be set")
    return target
