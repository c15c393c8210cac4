"""A place in the tokens of a rule's text and how deep it is nested. Base of the parser, without grammar."""

from __future__ import annotations

from polybus.errors import RuleSyntaxError
from polybus.limits import RULE_DEPTH, RULE_TEXT_CHARACTERS
from polybus.rules.lexer import END, Token, tokenize, wrong


class TokenCursor:
    def __init__(self, text: str) -> None:
        if len(text) > RULE_TEXT_CHARACTERS:
            found = f"{len(text)} characters"
            raise wrong(RULE_TEXT_CHARACTERS, found, f"at most {RULE_TEXT_CHARACTERS}")
        self._tokens = tokenize(text)
        self._at = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        """The next token, not yet taken."""
        return self._tokens[self._at]

    def take(self) -> Token:
        """The next token; the end stays where it is."""
        token = self._tokens[self._at]
        if token.kind != END:
            self._at += 1
        return token

    def skip(self, kind: str) -> bool:
        """Takes the next token if it is of that kind."""
        if self.token.kind != kind:
            return False
        self.take()
        return True

    def expect(self, kind: str, expected: str) -> Token:
        if self.token.kind != kind:
            raise self.wrong(expected)
        return self.take()

    def wrong(self, expected: str) -> RuleSyntaxError:
        return wrong(self.token.position, str(self.token), expected)

    def deeper(self, token: Token) -> None:
        self._depth += 1
        if self._depth > RULE_DEPTH:
            raise wrong(token.position, str(token), f"at most {RULE_DEPTH} levels of nesting")

    def shallower(self) -> None:
        self._depth -= 1
