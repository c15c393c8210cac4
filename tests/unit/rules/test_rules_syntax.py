"""Wrong texts: each is refused with the 1-based column, what was found there and what was expected."""

from __future__ import annotations

import pytest

from polybus.errors import ArgumentError, RuleSyntaxError
from polybus.limits import ACTION_STATEMENTS, RULE_DEPTH, RULE_TEXT_CHARACTERS
from polybus.rules import SqlAction, SqlFilter

A_VALUE = "a property, a constant, a function, NOT, EXISTS or '('"

FILTERS = [
    ("", 1, "found the end, expected " + A_VALUE),
    ("   ", 4, "found the end, expected " + A_VALUE),
    ("a =", 4, "found the end, expected " + A_VALUE),
    ("= 1", 1, "found '=', expected " + A_VALUE),
    ("a == 1", 4, "found '=', expected " + A_VALUE),
    ("a = = 1", 5, "found '=', expected " + A_VALUE),
    ("a AND", 6, "found the end, expected " + A_VALUE),
    ("a AND OR b", 7, "found 'OR', expected " + A_VALUE),
    ("a = 1 AND and b", 11, "found 'and', expected " + A_VALUE),
    ("a = 1 b", 7, "found 'b', expected AND, OR or the end"),
    ("a b", 3, "found 'b', expected an operator or the end"),
    ("a = 'x' 'y'", 9, "found the string 'y', expected AND, OR or the end"),
    ("a = 1;", 6, "found ';', expected AND, OR or the end"),
    ("(a = 1", 7, "found the end, expected AND, OR or ')'"),
    ("(a", 3, "found the end, expected an operator or ')'"),
    ("a = 1)", 6, "found ')', expected AND, OR or the end"),
    ("()", 2, "found ')', expected " + A_VALUE),
    ("a = 'open", 10, "found the end, expected a closing ' for column 5"),
    ("a = 'it''s", 11, "found the end, expected a closing ' for column 5"),
    ("[open = 1", 10, "found the end, expected a closing ] for column 1"),
    ('"open = 1', 10, 'found the end, expected a closing " for column 1'),
    ("[] = 1", 1, "found an empty name, expected a property name"),
    ('"" = 1', 1, "found an empty name, expected a property name"),
    ("a = #", 5, "found the character '#', expected a name, a constant or an operator"),
    ("a ! b", 3, "found the character '!', expected a name, a constant or an operator"),
    ("_a = 1", 1, "found the character '_', expected a name, a constant or an operator"),
    ("a & b", 3, "found the character '&', expected a name, a constant or an operator"),
    ("a = @", 5, "found '@', expected @ and the name of a parameter"),
    ("a = @1", 5, "found '@', expected @ and the name of a parameter"),
    ("a = @unknown", 5, "found @unknown, expected a parameter that the rule has a value for"),
    ("sys.Nothing = 1", 5, "found the unknown system property 'Nothing', expected one that messages have"),
    ("a = 1 AND sys.[La bel] = 1", 15, "found the unknown system property 'La bel', expected one"),
    ("sys. = 1", 6, "found '=', expected a property name"),
    ("sys.'x' = 1", 5, "found the string 'x', expected a property name"),
    ("user.in = 1", 6, "found 'in', expected a property name"),
    ("other.name = 1", 1, "found the scope 'other', expected sys or user"),
    ("[sys].Label = 1", 1, "found the scope 'sys', expected sys or user"),
    ("sys.Label.x = 1", 10, "found '.', expected an operator or the end"),
    ("foo(1) = 1", 1, "found the function 'foo', expected newid, property or p"),
    ("newid(1) = a", 7, "found '1', expected ')'"),
    ("newid( = a", 8, "found '=', expected ')'"),
    ("p() = 1", 3, "found ')', expected " + A_VALUE),
    ("p(1) = 1", 3, "found a value that is no string, expected the name of a property"),
    ("p('a', 'b') = 1", 6, "found ',', expected ')'"),
    ("a IS 1", 6, "found '1', expected NULL or NOT NULL"),
    ("a IS NOT 1", 10, "found '1', expected NULL"),
    ("1 IS NULL", 3, "found 'IS' after a value, expected a property before it"),
    ("a + b IS NULL", 7, "found 'IS' after a value, expected a property before it"),
    ("a NOT 1", 7, "found '1', expected IN or LIKE"),
    ("a NOT NULL", 7, "found 'NULL', expected IN or LIKE"),
    ("a IN 1", 6, "found '1', expected '(' and the list of IN"),
    ("a IN ()", 7, "found ')', expected " + A_VALUE),
    ("a IN (1,)", 9, "found ')', expected " + A_VALUE),
    ("a IN (1 2)", 9, "found '2', expected ',' or ')'"),
    ("a IN (1", 8, "found the end, expected ',' or ')'"),
    ("a IN (b = 1)", 7, "found a condition, expected a value"),
    ("a LIKE", 7, "found the end, expected " + A_VALUE),
    ("a LIKE 'x' ESCAPE", 18, "found the end, expected " + A_VALUE),
    ("a LIKE 'x' ESCAPE 'ab'", 19, "found a longer or shorter ESCAPE, expected a string of one character"),
    ("a LIKE 'x' ESCAPE ''", 19, "found a longer or shorter ESCAPE, expected a string of one character"),
    ("a LIKE 'x' ESCAPE 1", 19, "found a longer or shorter ESCAPE, expected a string of one character"),
    ("ESCAPE 'x'", 1, "found 'ESCAPE', expected " + A_VALUE),
    ("EXISTS a", 8, "found 'a', expected '(' and a property"),
    ("EXISTS(1)", 8, "found '1', expected a property"),
    ("EXISTS(newid())", 8, "found a value, expected a property"),
    ("EXISTS(a", 9, "found the end, expected ')'"),
    ("1", 1, "found a value, expected a condition"),
    ("'text'", 1, "found a value, expected a condition"),
    ("a = 1 AND 'text'", 11, "found a value, expected a condition"),
    ("NOT 5", 5, "found a value, expected a condition"),
    ("a + 1", 1, "found a value, expected a condition"),
    ("-a", 1, "found a value, expected a condition"),
    ("newid()", 1, "found a value, expected a condition"),
    ("@number", 1, "found a value, expected a condition"),
    ("a = b = c", 7, "found '=', expected AND, OR, ')' or the end"),
    ("(a = 1) = TRUE", 9, "found '=', expected AND, OR, ')' or the end"),
    ("(a = 1) + 1 = 2", 9, "found '+', expected AND, OR, ')' or the end"),
    ("a = (b = 1)", 6, "found a condition, expected a value"),
    ("1 + (a IS NULL) = 2", 6, "found a condition, expected a value"),
    ("a = NOT b", 5, "found a condition, expected a value"),
    ("- EXISTS(a) = 1", 3, "found a condition, expected a value"),
    ("a = 9223372036854775808", 5, "found the integer 9223372036854775808, expected one in the range of Int64"),
    ("a = -9223372036854775809", 5, "found the integer -9223372036854775809, expected one in the range"),
    ("a = 1e999", 5, "found '1e999', expected a number in the range of a double"),
    ("a = 1x", 6, "found 'x', expected AND, OR or the end"),
    ("a = 1.2.3", 8, "found '.3', expected AND, OR or the end"),
]

ACTIONS = [
    ("", 1, "found the end, expected SET or REMOVE"),
    ("a = 1", 1, "found 'a', expected SET or REMOVE"),
    ("SET", 4, "found the end, expected a property"),
    ("SET a", 6, "found the end, expected '='"),
    ("SET a 1", 7, "found '1', expected '='"),
    ("SET a =", 8, "found the end, expected " + A_VALUE),
    ("SET 'a' = 1", 5, "found the string 'a', expected a property"),
    ("SET p('a') = 1", 6, "found '(', expected '='"),
    ("SET a = 1 = 2", 9, "found a condition, expected a value"),
    ("SET a = b > 1", 9, "found a condition, expected a value"),
    ("SET a = 1,", 11, "found the end, expected SET or REMOVE"),
    ("SET a = 1, b = 2", 12, "found 'b', expected SET or REMOVE"),
    ("SET a = 1;;", 11, "found ';', expected SET or REMOVE"),
    ("SET a = 1 'x'", 11, "found the string 'x', expected an operator, ';', ',', SET, REMOVE or the end"),
    ("REMOVE a = 1", 10, "found '=', expected ';', ',', SET, REMOVE or the end"),
    ("REMOVE", 7, "found the end, expected a property"),
    ("DELETE a", 1, "found 'DELETE', expected SET or REMOVE"),
    ("\u017fET a = 1", 1, "found '\u017fET', expected SET or REMOVE"),
    ("SET sys.Nothing = 1", 9, "found the unknown system property 'Nothing'"),
    ("SET sys.SequenceNumber = 1", 5, "found the read-only property 'sys.sequencenumber', expected one that"),
    ("REMOVE sys.EnqueuedTimeUtc", 8, "found the read-only property 'sys.enqueuedtimeutc', expected one that"),
    ("SET a = sys.Nothing", 13, "found the unknown system property 'Nothing'"),
    ("SET a = @x", 9, "found @x, expected a parameter that the rule has a value for"),
]


@pytest.mark.parametrize(("text", "column", "message"), FILTERS)
def test_wrong_filter(text: str, column: int, message: str) -> None:
    with pytest.raises(RuleSyntaxError) as refusal:
        SqlFilter(text, {"@number": 5})
    assert refusal.value.position == column
    assert refusal.value.description.startswith(f"Column {column}: {message}")


@pytest.mark.parametrize(("text", "column", "message"), ACTIONS)
def test_wrong_action(text: str, column: int, message: str) -> None:
    with pytest.raises(RuleSyntaxError) as refusal:
        SqlAction(text)
    assert refusal.value.position == column
    assert refusal.value.description.startswith(f"Column {column}: {message}")


def test_the_text_of_a_rule_is_bounded() -> None:
    longest = "a='" + "x" * (RULE_TEXT_CHARACTERS - 4) + "'"
    SqlFilter(longest)
    SqlAction("SET " + longest[:-5] + "'")
    for wrong in (SqlFilter, SqlAction):
        with pytest.raises(RuleSyntaxError, match="found 1025 characters, expected at most 1024") as refusal:
            wrong(longest + " ")
        assert refusal.value.position == RULE_TEXT_CHARACTERS + 1


@pytest.mark.parametrize(
    "opening", ["(", "NOT ", "NOT(", "1+1*(", "a=1 AND b=1 OR(", "p(", "-", "+(", "a IN(1,", "a=1+p("]
)
def test_nesting_is_bounded(opening: str) -> None:
    with pytest.raises(RuleSyntaxError):
        SqlFilter((opening * RULE_TEXT_CHARACTERS)[:RULE_TEXT_CHARACTERS])


@pytest.mark.parametrize(
    ("opening", "core", "closing"),
    [("(", "a = 1", ")"), ("NOT ", "a = 1", ""), ("TRUE AND(", "a = 1", ")"), ("FALSE OR(", "a = 1", ")")],
)
def test_the_deepest_nesting_works(opening: str, core: str, closing: str) -> None:
    SqlFilter(opening * RULE_DEPTH + core + closing * RULE_DEPTH)
    with pytest.raises(RuleSyntaxError, match=f"at most {RULE_DEPTH} levels of nesting"):
        SqlFilter(opening * (RULE_DEPTH + 1) + core + closing * (RULE_DEPTH + 1))


@pytest.mark.parametrize("opening", ["1+1*(", "1+1*-(", "p("])
def test_the_deepest_value_works(opening: str) -> None:
    levels = RULE_DEPTH // 2 if "-" in opening else RULE_DEPTH
    core = "'a'" if opening == "p(" else "1"
    SqlFilter("a = " + opening * levels + core + ")" * levels)
    with pytest.raises(RuleSyntaxError, match="levels of nesting"):
        SqlFilter("a = " + opening * (levels + 1) + core + ")" * (levels + 1))


def test_side_by_side_is_not_nesting() -> None:
    SqlFilter(" AND ".join(["(a=1)"] * 100))
    SqlFilter("a=" + "+".join(["(1)"] * 200))
    SqlFilter("a IN (" + ",".join(["-(1)"] * 150) + ")")
    SqlFilter("+".join(["p('a')"] * 100) + "=1")


def test_an_action_has_a_bounded_number_of_statements() -> None:
    SqlAction("SET a=1;" * ACTION_STATEMENTS)
    with pytest.raises(RuleSyntaxError, match="found 'REMOVE', expected at most 32 statements") as refusal:
        SqlAction("SET a=1;" * ACTION_STATEMENTS + "REMOVE b")
    assert refusal.value.position == 8 * ACTION_STATEMENTS + 1


@pytest.mark.parametrize("value", [[1], {}, object(), 1j])
def test_a_parameter_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(ArgumentError, match="The parameter '@x' has a value of type"):
        SqlFilter("a = @x", {"@x": value})


def test_the_error_is_an_argument_error_on_the_wire() -> None:
    with pytest.raises(RuleSyntaxError) as refusal:
        SqlFilter("a =")
    assert refusal.value.condition == "com.microsoft:argument-error"
    assert (refusal.value.http_status, refusal.value.sub_code) == (400, 40000)


def test_keywords_are_ascii_words_only() -> None:
    with pytest.raises(RuleSyntaxError, match="expected an operator or the end"):
        SqlFilter("a \u0131s null")


def test_a_parameter_that_is_a_pattern_is_as_short_as_a_text() -> None:
    longest = "_" * RULE_TEXT_CHARACTERS
    assert SqlFilter("a LIKE @p", {"p": longest}).expression == "a LIKE @p"
    with pytest.raises(RuleSyntaxError, match="found a pattern of 1025 characters, expected at most 1024") as refused:
        SqlFilter("a = 1 OR a LIKE @p", {"p": longest + "_"})
    assert refused.value.position == 17
