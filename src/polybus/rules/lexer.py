"""The text of a filter or an action, cut into tokens (docs/protocol/rules.md#sql).

Written by hand: no regular expression may meet hostile text. Errors are given as 1-based columns.
"""

from __future__ import annotations

import math
from typing import Final

from polybus.errors import RuleSyntaxError

NAME: Final = "name"
QUOTED: Final = "quoted name"
INTEGER: Final = "integer"
DOUBLE: Final = "double"
STRING: Final = "string"
PARAMETER: Final = "parameter"
END: Final = "end"

_KEYWORDS: Final = ("AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE")
_SYMBOLS: Final = ("<>", "<=", ">=", "!=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",", ".", ";")


def wrong(position: int, found: str, expected: str) -> RuleSyntaxError:
    """The error for a text that goes wrong at `position`, counted from 0."""
    return RuleSyntaxError(f"Column {position + 1}: found {found}, expected {expected}.", position + 1)


class Token:
    """`kind` is one of the names above, or the symbol, or the keyword in capitals.

    `text` is what a name, string or parameter says without its quotes, otherwise as written; a number's
    value is in `number`.
    """

    def __init__(self, kind: str, text: str, position: int, number: int | float = 0) -> None:
        self.kind = kind
        self.text = text
        self.position = position
        self.number = number

    def __str__(self) -> str:
        if self.kind == END:
            return "the end"
        if self.kind == STRING:
            return f"the string '{self.text}'"
        return f"@{self.text}" if self.kind == PARAMETER else f"'{self.text}'"


def tokenize(text: str) -> list[Token]:
    """All tokens of the text, the last of kind END."""
    return _Lexer(text).tokens()


class _Lexer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def tokens(self) -> list[Token]:
        found: list[Token] = []
        self._skip_blanks()
        while self._at < len(self._text):
            found.append(self._next())
            self._skip_blanks()
        found.append(Token(END, "", self._at))
        return found

    def _skip_blanks(self) -> None:
        while self._peek().isspace():
            self._at += 1

    def _peek(self, ahead: int = 0) -> str:
        """The character there, or nothing behind the end."""
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _next(self) -> Token:
        start = self._at
        first = self._peek()
        if first.isalpha():
            return self._word(start)
        if _is_digit(first) or (first == "." and _is_digit(self._peek(1))):
            return self._number(start)
        if first == "'":
            return Token(STRING, self._enclosed("'", "a closing '"), start)
        if first == '"':
            return self._quoted_name('"', start)
        if first == "[":
            return self._quoted_name("]", start)
        if first == "@":
            return self._parameter(start)
        return self._symbol(start)

    def _word(self, start: int) -> Token:
        text = self._identifier()
        # Only ASCII: the capital of the Turkish dotless i, for one, is a plain I.
        if text.isascii() and text.upper() in _KEYWORDS:
            return Token(text.upper(), text, start)
        return Token(NAME, text, start)

    def _identifier(self) -> str:
        start = self._at
        while (letter := self._peek()) and (letter.isalpha() or letter.isdecimal() or letter == "_"):
            self._at += 1
        return self._text[start : self._at]

    def _number(self, start: int) -> Token:
        self._skip_digits()
        kind = INTEGER
        if self._peek() == ".":
            kind = DOUBLE
            self._at += 1
            self._skip_digits()
        if self._skip_exponent():
            kind = DOUBLE
        text = self._text[start : self._at]
        if kind == INTEGER:
            return Token(kind, text, start, int(text))
        number = float(text)
        if math.isinf(number):
            raise wrong(start, f"'{text}'", "a number in the range of a double")
        return Token(kind, text, start, number)

    def _skip_digits(self) -> None:
        while _is_digit(self._peek()):
            self._at += 1

    def _skip_exponent(self) -> bool:
        """An `e` that no digit follows is the beginning of the next word."""
        if self._peek() not in ("e", "E"):
            return False
        ahead = 2 if self._peek(1) in ("+", "-") else 1
        if not _is_digit(self._peek(ahead)):
            return False
        self._at += ahead
        self._skip_digits()
        return True

    def _enclosed(self, closing: str, expected: str) -> str:
        """What stands between here and the closing mark, which is doubled where it is meant itself."""
        pieces: list[str] = []
        start = self._at + 1
        while True:
            end = self._text.find(closing, start)
            if end < 0:
                raise wrong(len(self._text), "the end", f"{expected} for column {self._at + 1}")
            pieces.append(self._text[start:end])
            if self._text[end + 1 : end + 2] != closing:
                self._at = end + 1
                return closing.join(pieces)
            start = end + 2

    def _quoted_name(self, closing: str, start: int) -> Token:
        text = self._enclosed(closing, f"a closing {closing}")
        if not text:
            raise wrong(start, "an empty name", "a property name")
        return Token(QUOTED, text, start)

    def _parameter(self, start: int) -> Token:
        self._at += 1
        if not self._peek().isalpha():
            raise wrong(start, "'@'", "@ and the name of a parameter")
        return Token(PARAMETER, self._identifier(), start)

    def _symbol(self, start: int) -> Token:
        for symbol in _SYMBOLS:
            if self._text.startswith(symbol, start):
                self._at += len(symbol)
                return Token(symbol, symbol, start)
        raise wrong(start, f"the character {self._peek()!r}", "a name, a constant or an operator")


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"
