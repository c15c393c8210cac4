"""What filters say of one message: true (T), false (F), unknown (U), or the reason of a failure."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal

import pytest
from rules_kit import NOON, SOME_ID, Ids, Message, truth

from polybus.rules import RuleEvaluationError, SqlFilter

T, F, U = True, False, None

ORDER = {
    "color": "blue",
    "quantity": 20,
    "price": 2.5,
    "total": Decimal("10.10"),
    "vip": True,
    "late": False,
    "gone": None,
    "raw": b"\x01",
    "id": SOME_ID,
    "due": NOON,
    "lead": timedelta(hours=2),
    "Mixed Case": "yes",
    "x]y": 1,
    'q"t': 2,
    "in": 3,
    "big": 2**63 - 1,
    "small": -(2**63),
    "name": "it's",
}

CONSTANTS = [
    ("1=1", T),
    ("1=0", F),
    ("1 > 1", F),
    ("TRUE", T),
    ("false", F),
    ("NULL", U),
    ("NULL = NULL", U),
    ("NULL IN (NULL)", U),
    ("'a' = 'a'", T),
    ("'a' = 'A'", F),
    ("'it''s' = name", T),
    ("'' = ''", T),
    ("1.5 = 1.50", T),
    ("15E-1 = 1.5", T),
    ("1e3 = 1000", T),
    (".5 = 0.5", T),
    ("5. = 5", T),
    ("9223372036854775807 = big", T),
    ("-9223372036854775808 = small", T),
    ("007 = 7", T),
    ("TRUE = TRUE", T),
    ("TRUE <> FALSE", T),
]

NUMBERS = [
    ("quantity = 20", T),
    ("quantity <> 20", F),
    ("quantity != 21", T),
    ("quantity > 19", T),
    ("quantity >= 20", T),
    ("quantity < 20", F),
    ("quantity <= 20", T),
    ("19 < quantity", T),
    ("20 <= quantity", T),
    ("21 > quantity", T),
    ("19 >= quantity", F),
    ("quantity = 20.0", T),
    ("price = 2.5", T),
    ("price > 2", T),
    ("price < 3", T),
    ("total > 10", T),
    ("total = 10.1", T),
    ("total < 10.2", T),
    ("total > price", T),
    ("price < total", T),
    ("big = 9223372036854775807.0", T),
    ("9007199254740993 = 9007199254740992.0", T),
    ("quantity = price", F),
    ("quantity > price", T),
]

ARITHMETIC = [
    ("quantity + 1 = 21", T),
    ("quantity - 1 = 19", T),
    ("quantity * 2 = 40", T),
    ("quantity / 3 = 6", T),
    ("quantity % 3 = 2", T),
    ("-7 / 2 = -3", T),
    ("-7 % 2 = -1", T),
    ("7 / -2 = -3", T),
    ("7 % -2 = 1", T),
    ("7 / 2.0 = 3.5", T),
    ("-7 % 4.0 = -3", T),
    ("1 + 2 * 3 = 7", T),
    ("(1 + 2) * 3 = 9", T),
    ("10 - 3 - 2 = 5", T),
    ("100 / 10 / 5 = 2", T),
    ("2 * 3 % 4 = 2", T),
    ("2 + 7 % 4 = 5", T),
    ("2 + 8 / 4 = 4", T),
    ("-quantity = -20", T),
    ("+quantity = 20", T),
    ("- -quantity = 20", T),
    ("-price = -2.5", T),
    ("-total < 0", T),
    ("-lead < lead", T),
    ("-big = small + 1", T),
    ("quantity+-1 = 19", T),
    ("total * 2 = total + total", T),
    ("total / 2 > 5", T),
    ("total % 10 < 1", T),
    ("total + price > 12.5", T),
    ("1.0 / 0 > 1e308", T),
    ("-1 / 0.0 < -1e308", T),
    ("0.0 / 0 = 0.0 / 0", F),
    ("0.0 / 0 <> 1", T),
    ("1 % 0.0 = 1", F),
    ("'a' + 'b' = 'ab'", T),
    ("color + '!' = 'blue!'", T),
    ("color - 'b' = 'lue'", U),
    ("color + 1 = 'blue1'", U),
    ("vip + 1 = 2", U),
    ("-color = 'x'", U),
    ("missing + 1 = 1", U),
    ("1 + missing = 1", U),
    ("-missing = 1", U),
    ("gone * 2 = 0", U),
    ("raw + raw = raw", U),
]

DATES = [
    ("due = due", T),
    ("due > due", F),
    ("due - due < lead", T),
    ("due + lead > due", T),
    ("due - lead < due", T),
    ("due + lead - due = lead", T),
    ("lead + lead > lead", T),
    ("lead - lead = lead", F),
    ("lead + due > due", U),
    ("due + due > due", U),
    ("due * 2 > due", U),
    ("due + 1 > due", U),
    ("lead * 2 > lead", U),
    ("due = 'noon'", U),
    ("due > 5", U),
]

TYPES = [
    ("color = 1", U),
    ("color <> 1", U),
    ("quantity = '20'", U),
    ("vip = TRUE", T),
    ("vip <> TRUE", F),
    ("vip != late", T),
    ("vip = 1", U),
    ("vip > late", U),
    ("id = id", T),
    ("id <> id", F),
    ("id > id", U),
    ("id = '8c2a4f0e-7a0e-4d0c-9a56-0f9d4e5b8a11'", U),
    ("raw = raw", U),
    ("raw <> raw", U),
    ("color < 'c'", T),
    ("color > 'Blue'", T),
    ("color >= 'blue'", T),
    ("newid() = newid()", F),
    ("newid() = 'x'", U),
]

NULLS = [
    ("missing IS NULL", T),
    ("missing IS NOT NULL", F),
    ("gone IS NULL", T),
    ("gone IS NOT NULL", F),
    ("color IS NULL", F),
    ("color IS NOT NULL", T),
    ("EXISTS(color)", T),
    ("exists ( user.color )", T),
    ("EXISTS(gone)", T),
    ("EXISTS(missing)", F),
    ("NOT EXISTS(missing)", T),
    ("EXISTS([Mixed Case])", T),
    ("EXISTS(p('color'))", T),
    ("EXISTS(p('miss' + 'ing'))", F),
    ("EXISTS(p(color))", F),
    ("p(gone) IS NULL", T),
    ("EXISTS(p(gone))", F),
    ("missing = 1", U),
    ("missing <> 1", U),
    ("NOT missing = 1", U),
    ("gone = NULL", U),
    ("missing = missing", U),
    ("missing", U),
    ("NOT missing", U),
]

LOGIC = [
    ("TRUE AND TRUE", T),
    ("TRUE AND FALSE", F),
    ("TRUE AND NULL", U),
    ("FALSE AND NULL", F),
    ("NULL AND FALSE", F),
    ("NULL AND NULL", U),
    ("TRUE OR NULL", T),
    ("NULL OR TRUE", T),
    ("FALSE OR FALSE", F),
    ("FALSE OR NULL", U),
    ("NULL OR FALSE", U),
    ("NULL OR NULL", U),
    ("NOT TRUE", F),
    ("NOT FALSE", T),
    ("NOT NULL", U),
    ("NOT NOT TRUE", T),
    ("vip", T),
    ("late", F),
    ("NOT late", T),
    ("vip AND NOT late", T),
    ("quantity AND vip", U),
    ("color OR vip", T),
    ("TRUE OR FALSE AND FALSE", T),
    ("(TRUE OR FALSE) AND FALSE", F),
    ("NOT FALSE AND FALSE", F),
    ("NOT (FALSE AND FALSE)", T),
    ("NOT color = 'red'", T),
    ("NOT quantity = 20 OR vip", T),
    ("color = 'blue' AND quantity > 10", T),
    ("color = 'blue' AND quantity > 20", F),
    ("color = 'red' OR quantity = 20", T),
    ("color = 'red' OR missing = 1", U),
    ("color = 'red' AND missing = 1", F),
    ("((color) = ('blue'))", T),
    ("late OR 1 / 0 = 1 OR TRUE", "DivideByZeroException"),
    ("vip OR 1 / 0 = 1", T),
    ("late AND 1 / 0 = 1", F),
    ("missing AND 1 / 0 = 1", "DivideByZeroException"),
]

MEMBERS = [
    ("color IN ('red', 'blue')", T),
    ("color IN ('red')", F),
    ("color NOT IN ('red')", T),
    ("color NOT IN ('blue')", F),
    ("quantity IN (1, 20)", T),
    ("quantity IN (20.0)", T),
    ("quantity IN ('x', 20)", T),
    ("quantity IN ('x')", U),
    ("quantity IN ('x', 1)", U),
    ("quantity NOT IN ('x', 1)", U),
    ("missing IN ('x')", U),
    ("missing NOT IN (1)", U),
    ("quantity IN (missing, 20)", T),
    ("quantity IN (missing, 1)", U),
    ("quantity + 1 IN (21)", T),
    ("quantity IN (10 + 10)", T),
    ("color IN (name, color)", T),
    ("vip IN (TRUE)", T),
    ("NOT color IN ('red')", T),
    ("quantity IN (20, 1/0)", T),
    ("quantity IN (1/0, 20)", "DivideByZeroException"),
]

LIKES = [
    ("color LIKE 'blue'", T),
    ("color LIKE 'b%'", T),
    ("color LIKE '%e'", T),
    ("color LIKE '%lu%'", T),
    ("color LIKE 'b__e'", T),
    ("color LIKE '____'", T),
    ("color LIKE '___'", F),
    ("color LIKE '_____'", F),
    ("color LIKE '%'", T),
    ("color LIKE ''", F),
    ("'' LIKE ''", T),
    ("'' LIKE '%'", T),
    ("'' LIKE '_'", F),
    ("color LIKE 'B%'", F),
    ("color NOT LIKE 'r%'", T),
    ("color NOT LIKE 'b%'", F),
    ("NOT color LIKE 'b%'", F),
    ("color LIKE 'b' + '%'", T),
    ("color LIKE color", T),
    ("color LIKE '%' + color + '%'", T),
    ("missing LIKE 'b%'", U),
    ("color LIKE missing", U),
    ("color LIKE NULL", U),
    ("quantity LIKE '2%'", U),
    ("color LIKE 2", U),
    ("'50%' LIKE '50!%' ESCAPE '!'", T),
    ("'500' LIKE '50!%' ESCAPE '!'", F),
    (r"'ABC%' LIKE 'ABC\%' ESCAPE '\'", T),
    (r"'ABCD' LIKE 'ABC\%' ESCAPE '\'", F),
    ("'a_b' LIKE 'a!_b' ESCAPE '!'", T),
    ("'axb' LIKE 'a!_b' ESCAPE '!'", F),
    ("'a!b' LIKE 'a!!b' ESCAPE '!'", T),
    ("'a!' LIKE 'a!' ESCAPE '!'", T),
    ("'a' LIKE 'a' ESCAPE NULL", U),
    ("'a' LIKE 'a' ESCAPE missing", U),
    ("color LIKE 'x' ESCAPE quantity", U),
    ("color LIKE 'x' ESCAPE color", "FilterException"),
    ("color LIKE 'x' ESCAPE 'a' + 'b'", "FilterException"),
    ("'abcbd' LIKE 'a%b_'", T),
    ("'aXbYc' LIKE '%b%c'", T),
    ("'ab' LIKE 'a%ab'", F),
    ("'a.b' LIKE 'a.b'", T),
    ("'axb' LIKE 'a.b'", F),
]

NAMES = [
    ("COLOR = 'blue'", T),
    ("Color = 'blue'", T),
    ("user.color = 'blue'", T),
    ("USER.Color = 'blue'", T),
    ("\"color\" = 'blue'", T),
    ("[color] = 'blue'", T),
    ("user.[color] = 'blue'", T),
    ("[Mixed Case] = 'yes'", T),
    ("[mixed case] = 'yes'", T),
    ("[x]]y] = 1", T),
    ('"q""t" = 2', T),
    ("[in] = 3", T),
    ("property('color') = 'blue'", T),
    ("p('color') = 'blue'", T),
    ("P('COLOR') = 'blue'", T),
    ("p('mixed' + ' case') = 'yes'", T),
    ("p(quantity) = 1", U),
    ("p(missing) = 1", U),
    ("p(NULL) = 1", U),
    ("p = 1", U),
    ("sys = 1", U),
    ("user = 1", U),
    ("newid = 1", U),
    ("set = 1", U),
    ("größe = 1", U),
    ("color='blue'AND quantity=20OR 1=0", T),
]

TABLES = {
    "constants": CONSTANTS,
    "numbers": NUMBERS,
    "arithmetic": ARITHMETIC,
    "dates": DATES,
    "types": TYPES,
    "nulls": NULLS,
    "logic": LOGIC,
    "members": MEMBERS,
    "likes": LIKES,
    "names": NAMES,
}
CASES = [pytest.param(text, answer, id=f"{topic}: {text}") for topic in TABLES for text, answer in TABLES[topic]]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("expression", "answer"), CASES)
def test_expression(expression: str, answer: bool | str | None) -> None:
    if isinstance(answer, str):
        with pytest.raises(RuleEvaluationError) as failure:
            truth(expression, ORDER)
        assert failure.value.reason == answer
    else:
        assert truth(expression, ORDER) is answer


def test_the_table_is_as_large_as_promised() -> None:
    assert len(CASES) >= 150


@pytest.mark.parametrize(("expression", "answer"), CASES)
def test_a_filter_matches_only_on_true(expression: str, answer: bool | str | None) -> None:
    matched: bool | str
    try:
        matched = SqlFilter(expression).matches(Message(ORDER), Ids())
    except RuleEvaluationError as failure:
        matched = failure.reason
    if expression == "missing AND 1 / 0 = 1":
        # Asked only whether it is true, an AND ends at the first operand that is not.
        answer = False
    assert matched == (answer if isinstance(answer, str) else answer is True)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1 / 0 = 1", "DivideByZeroException"),
        ("1 % 0 = 1", "DivideByZeroException"),
        ("quantity / 0 = 1", "DivideByZeroException"),
        ("quantity / (quantity - 20) = 1", "DivideByZeroException"),
        ("total / 0 = 1", "DivideByZeroException"),
        ("total % 0 = 1", "DivideByZeroException"),
        ("big + 1 > 0", "OverflowException"),
        ("small - 1 < 0", "OverflowException"),
        ("big * 2 > 0", "OverflowException"),
        ("-small > 0", "OverflowException"),
        ("small / -1 > 0", "OverflowException"),
        ("huge * huge > 0", "OverflowException"),
        ("due + lead * 1 > due OR due + longest > due", "ArgumentOutOfRangeException"),
        ("longest + longest > lead", "ArgumentOutOfRangeException"),
        ("-longest < lead", "OverflowException"),
        ("long + long = long", "ArgumentOutOfRangeException"),
        ("color LIKE long", "FilterException"),
        ("color LIKE 'x' ESCAPE name", "FilterException"),
    ],
)
def test_evaluation_fails(expression: str, reason: str) -> None:
    extremes = {
        "huge": Decimal("9E+999999"),
        "longest": timedelta.max,
        "long": "x" * 40_000,
    }
    with pytest.raises(RuleEvaluationError) as failure:
        SqlFilter(expression).matches(Message(ORDER | extremes))
    assert failure.value.reason == reason
    assert failure.value.description.endswith(".")
    assert str(failure.value) == f"{reason}: {failure.value.description}"


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("sys.Label = 'order'", T),
        ("sys.Subject = 'order'", T),
        ("SYS.label LIKE 'ord%'", T),
        ("sys.[Label] = 'order'", T),
        ("sys.MessageId = 'm1'", T),
        ("sys.To IN ('a', 'b')", T),
        ("sys.ReplyTo IS NULL", T),
        ("sys.Label IS NOT NULL", T),
        ("EXISTS(sys.Label)", T),
        ("EXISTS(sys.ReplyTo)", F),
        ("sys.SequenceNumber > 5", T),
        ("sys.EnqueuedTimeUtc >= @start", T),
        ("sys.ExpiresAtUtc - sys.EnqueuedTimeUtc = sys.TimeToLive", T),
        ("sys.DeliveryCount = 0", T),
        ("sys.ForcePersistence", F),
        ("sys.CorrelationId = 'x'", U),
        ("Label = 'order'", U),
        ("user.Label = 'order'", U),
    ],
)
def test_system_properties(expression: str, answer: bool | None) -> None:
    message = Message(
        label="order",
        messageid="m1",
        to="b",
        sequencenumber=7,
        enqueuedtimeutc=NOON,
        expiresatutc=NOON + timedelta(minutes=5),
        timetolive=timedelta(minutes=5),
        deliverycount=0,
        forcepersistence=False,
    )
    assert SqlFilter(expression, {"@start": NOON}).truth(message) is answer


def test_an_exact_name_comes_before_one_in_another_case() -> None:
    both = {"COLOR": "red", "color": "blue", "Color": "green"}
    assert truth("Color = 'green' AND color = 'blue' AND COLOR = 'red'", both) is True
    assert truth("cOlOr = 'red'", both) is True, "otherwise the first of the message"


def test_a_property_is_looked_up_once_for_each_message() -> None:
    message = Message({"Color": "x"}, label="a")
    assert SqlFilter("sys.Label = 'a' AND sys.Label = 'a' AND (sys.Label = 'b' OR color = 'x')").matches(message)
    assert message.asked == ["label"]


@pytest.mark.parametrize(
    ("expression", "parameters", "answer"),
    [
        ("color = @color", {"@color": "blue"}, T),
        ("color = @color", {"color": "blue"}, T),
        ("color = @Color", {"@color": "blue"}, T),
        ("color = @Color", {"@color": "red", "@Color": "blue"}, T),
        ("quantity > @least", {"@least": 19}, T),
        ("quantity > @least", {"@least": 2**64}, F),
        ("vip = @flag", {"@flag": True}, T),
        ("@flag", {"@flag": True}, T),
        ("id = @id", {"@id": SOME_ID}, T),
        ("due = @due", {"@due": NOON.replace(tzinfo=None)}, T),
        ("due - @due < @span", {"@due": NOON, "@span": timedelta(seconds=1)}, T),
        ("p(@name) = 'blue'", {"@name": "color"}, T),
        ("color LIKE @pattern", {"@pattern": "bl%"}, T),
        ("color IN (@a, @b)", {"@a": "red", "@b": "blue"}, T),
        ("quantity = @nothing", {"@nothing": None}, U),
        ("raw = @raw", {"@raw": b"\x01"}, U),
        ("price < @nan", {"@nan": math.nan}, F),
    ],
)
def test_parameters(expression: str, parameters: dict[str, object], answer: bool | None) -> None:
    assert SqlFilter(expression, parameters).truth(Message(ORDER)) is answer


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("not_a = 1", U),
        ("nan = nan", F),
        ("nan <> nan", T),
        ("nan < 1", F),
        ("dnan = dnan", F),
        ("dnan <> 1", T),
        ("dnan >= 1.5", F),
        ("1 < dnan", F),
        ("snan = 1", F),
        ("snan + 1.0 = 1", F),
        ("inf > 1", T),
        ("inf % 2 = 0", F),
        ("inf - inf = 0", F),
        ("dinf > inf", F),
        ("dinf = inf", T),
    ],
)
def test_numbers_that_are_none(expression: str, answer: bool | None) -> None:
    numbers = {
        "nan": math.nan,
        "dnan": Decimal("NaN"),
        "snan": Decimal("sNaN"),
        "inf": math.inf,
        "dinf": Decimal("Infinity"),
    }
    assert truth(expression, numbers) is answer


@pytest.mark.parametrize(
    ("expression", "sensitive", "folded"),
    [
        ("color = 'BLUE'", F, T),
        ("'BLUE' = color", F, T),
        ("color <> 'BLUE'", T, F),
        ("color < 'C'", F, T),
        ("color IN ('BLUE')", F, T),
        ("color LIKE 'BL%'", F, T),
        ("color LIKE 'B' + '%'", F, T),
        ("color LIKE '%' + COLOR", T, T),
        ("color LIKE 'BLXUE' ESCAPE 'x'", F, T),
        ("quantity = 20", T, T),
        ("color = 1", U, U),
    ],
)
def test_the_case_of_strings(expression: str, sensitive: bool | None, folded: bool | None) -> None:
    assert SqlFilter(expression).truth(Message(ORDER)) is sensitive
    assert SqlFilter(expression, ignore_case=True).truth(Message(ORDER)) is folded


def test_new_ids_come_from_the_given_source() -> None:
    ids = Ids()
    assert SqlFilter("newid() = @first AND newid() <> @first", {"@first": Ids()()}).matches(Message(), ids)
    assert ids.taken == 2
