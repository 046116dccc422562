"""Small files that ask for much: a few kilobytes whose reading would fill the memory, or take hours.

Each shape is made by a function of its size. ``FORMULAS``, ``RELEASES`` and ``SCHEMAS`` name those that are tried one
by one, each against a second and 500 MB; the fuzzer draws sizes of its own (``some_formula``, ``some_release``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import count, islice, product
from random import Random
from typing import Any

from dpglm.release_file import _checksum

Columns = dict[str, dict[str, Any]]
Asked = tuple[Columns, str]  # declared columns beside the outcome, and the right side of a formula
Data = dict[str, Any]

SECONDS = 1.0
MEGABYTES = 500  # beyond a process that has read a good file: libraries and the JSON Schema are loaded by then
NUMERIC = {"type": "numeric", "lower": 0.5, "upper": 2, "fill": 1}


def levels(number: int) -> dict[str, Any]:
    """Short ones, no two of which are the same number ("1e1" is "10")."""
    return {"type": "categorical", "levels": [f"n{n:x}" for n in range(number)], "fill": "n0"}


def named(number: int, column: dict[str, Any] = NUMERIC) -> Columns:
    """Columns with short names, so that many fit into a formula."""
    return dict.fromkeys(islice(_names(), number), column)


def _names() -> Iterator[str]:
    letters = "abcdefghijklmnopqrstuvwxz"  # the outcome is y
    return ("".join(name) for length in count(1) for name in product(letters, repeat=length) if "".join(name) != "in")


# Formulas, by what is large in them


def crossed(factors: int, number: int, operator: str = ":") -> Asked:
    """Few factors of many levels: columns are their product."""
    columns = named(factors, levels(number))
    return columns, operator.join(columns)


def chained(factors: int, operator: str) -> Asked:
    """Many factors, one after the other: each step of some operators writes all earlier ones again."""
    columns = named(min(factors, 390))
    names = list(columns)
    return columns, operator.join(names[n % len(names)] for n in range(factors))


def powered(factors: int, power: int) -> Asked:
    columns = named(factors)
    return columns, f"({'+'.join(columns)})**{power}"


def two_sums(factors: int, operator: str = ":") -> Asked:
    columns = named(factors)
    names = list(columns)
    half = factors // 2
    return columns, f"({'+'.join(names[:half])}){operator}({'+'.join(names[half:])})"


def long_expression(length: int, times: int) -> Asked:
    """An expression that is multiplied with many columns: it is read once a term."""
    columns = named(times + 1)
    first, *others = columns
    expression = first
    while 2 * len(expression) + 3 < length:
        expression = f"({expression}*{expression})" if len(expression) < 20 else f"({expression}+{expression})"
    return columns, f"I({expression}):({'+'.join(others)})"


def nested(depth: int, start: str, end: str = ")") -> Asked:
    return named(1), f"{start * depth}a{end * depth}"


def constant(text: str, times: int) -> Asked:
    return named(1), f"I(a{text * times})"


def underscored(length: int, quoted: int) -> Asked:
    """A text that holds every short stand-in for a quoted name, and many quoted names."""
    columns = {f"a {n:x}": NUMERIC for n in range(quoted)}
    return named(1) | columns, f"{'_' * length}quoted_column_+" + "*".join(f"`{name}`" for name in columns)


def alike(number: int, length: int) -> Asked:
    """Declared names that are hard to compare with an undeclared one."""
    chance = Random(number)
    columns = {"".join(chance.choice("ab") for _ in range(length)): NUMERIC for _ in range(number)}
    return columns, "".join(chance.choice("ab") for _ in range(length - 1)) + "c"


def spaced(number: int) -> Asked:
    return named(1), " " * number + "a("


FORMULAS: dict[str, Asked] = {
    "four factors of a thousand levels": crossed(4, 1000),
    "two factors of a thousand levels": crossed(2, 1000),
    "four factors of forty levels, and their parts": crossed(4, 40, "*"),
    "one factor of a thousand levels": crossed(1, 1000),
    "numbers times a factor of a thousand levels": (
        named(20) | {"z": levels(1000)},
        f"({'+'.join(named(20))}):z",
    ),
    "a product of thirteen and its parts": chained(13, "*"),
    "a chain of nested factors": chained(1200, "/"),
    "a chain of nests": chained(900, " %in% "),
    "a chain of products": chained(3000, ":"),
    "a sum of many": chained(3000, "+"),
    "a fourth power": powered(9, 4),
    "a square": powered(99, 2),
    "two long sums": two_sums(198),
    "two long sums, nested": two_sums(198, "/"),
    "an expression in a hundred terms": long_expression(8_000, 100),
    "an expression in three hundred terms": long_expression(900, 300),
    "brackets of a formula": nested(4_500, "("),
    "logarithms of logarithms": nested(1_500, "log("),
    "a long chain of signs": nested(9_500, "-", ""),
    "powers of powers": nested(1_500, "(", "**8)"),
    "a number of many digits": constant(f"+{'9' * 4200}", 1),
    "a power of many digits": constant(f"**0x{'f' * 9000}", 1),
    "many constants": constant("*2", 4_500),
    "names in quotes": underscored(6_000, 300),
    "names that are hard to compare": alike(390, 199),
    "spaces": spaced(9_900),
}  # fmt: skip


def some_formula(chance: Random) -> Asked:
    """Any of the shapes, of any size."""
    makers: tuple[Callable[[], Asked], ...] = (
        lambda: crossed(chance.randint(1, 5), chance.choice((2, 3, 12, 13, 250, 251, 1000)), chance.choice(":*+/")),
        lambda: chained(chance.randint(1, 3000), chance.choice(("+", "-", ":", "*", "/", " %in% ", "|", "**", "^"))),
        lambda: powered(chance.randint(1, 100), chance.randint(1, 5)),
        lambda: two_sums(chance.randint(2, 390), chance.choice((":", "*", "/", " %in% ", "-"))),
        lambda: long_expression(chance.randint(1, 9_000), chance.randint(1, 389)),
        lambda: nested(
            chance.randint(1, 3_000), chance.choice(("(", "log(", "I(", "-", "+")), chance.choice((")", ""))
        ),
        lambda: constant(chance.choice(("+9", "*2", "**8", "-1", "9", "0", "/a")), chance.randint(1, 4_000)),
        lambda: underscored(chance.randint(0, 9_000), chance.randint(1, 300)),
        lambda: alike(chance.randint(1, 390), chance.randint(2, 200)),
        lambda: spaced(chance.randint(1, 9_990)),
    )
    return chance.choice(makers)()


# Release files. A seed is the text of a good one, by logistic regression.


def with_formula(seed: str, asked: Asked) -> Data:
    """The file with another regression. What it says of the coding is not reached, or is wrong."""
    data = json.loads(seed)
    columns, right = asked
    regression = data["regression"]
    outcome = {"type": "binary", "levels": ["no", "yes"], "fill": "no"}
    regression |= {"formula": f"y ~ {right}"[:10_000], "declared_columns": {"y": outcome} | columns}
    return data  # type: ignore[no-any-return]


def with_blocks(seed: str, columns: int, pairs: list[tuple[int, int]], values: int = 1) -> Data:
    """Blocks of high degree over many columns, of which the file gives a few values."""
    data = with_formula(seed, chained(columns, "+"))
    first = data["stages"][0]["blocks"][0]
    made = [{**deepcopy(first), "y_power": y, "degree": degree, "values": ["1"] * values} for y, degree in pairs]
    data["stages"][0]["blocks"] = made
    return data


def with_value(seed: str, path: str, value: Any) -> Data:
    """One value replaced; the path is of keys and positions, with dots."""
    data = json.loads(seed)
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
    place = data
    for part in parents:
        place = place[part]
    place[last] = value
    return data  # type: ignore[no-any-return]


def with_looks(seed: str, number: int) -> Data:
    """The last look, again and again."""
    data = json.loads(seed)
    data["stages"] += [data["stages"][-1]] * number
    return data  # type: ignore[no-any-return]


def with_surveyed(seed: str, asked: Asked) -> Data:
    """The survey of another formula, in a file that states its own well."""
    data = json.loads(seed)
    columns, right = asked
    outcome = data["survey"]["declared_columns"]["y"]
    data["survey"] |= {"formula": f"y ~ {right}", "declared_columns": {"y": outcome} | columns}
    return data  # type: ignore[no-any-return]


def with_levels(seed: str, number: int, length: int) -> Data:
    """A column whose levels nearly are numbers."""
    column = {"type": "categorical", "levels": [f"{n:0{length - 1}}x" for n in range(number)], "fill": "none"}
    return with_formula(seed, ({"a": column}, "a"))


def inside(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


EVERY_BLOCK = [(y, degree) for y in (0, 1, 2) for degree in range(7) if (y, degree) != (0, 0)]
_VALUES, _VIEWPOINT = "stages.0.blocks.0.values", "stages.1.viewpoint"
_QUESTION, _PROFILE = "survey.questions.1", "profile"

# Of two seeds: moments, and looks.
RELEASES: dict[str, Callable[[str, str], Data]] = {
    "a block of degree six over 250 columns": lambda one, _: with_blocks(one, 250, [(0, 6)]),
    "every block over 250 columns": lambda one, _: with_blocks(one, 250, EVERY_BLOCK[:20]),
    "blocks of degree six over 17 columns": lambda one, _: with_blocks(one, 17, [(0, 6), (1, 6), (2, 6)]),
    "the same block twenty times": lambda one, _: with_blocks(one, 60, [(0, 3)] * 20),
    "values of eighty digits": lambda one, _: with_value(one, _VALUES, ["9" * 80] * 300),
    "a value of ten thousand digits": lambda one, _: with_value(one, _VALUES, ["9" * 10_000]),
    "a whitening matrix of another size": lambda _, looks: with_value(looks, f"{_VIEWPOINT}.whitening", [[1.0]] * 200),
    "a whitening matrix of huge numbers": lambda _, looks: with_value(
        looks, f"{_VIEWPOINT}.whitening", [[10**4000] * 3] * 3
    ),
    "a singular whitening matrix": lambda _, looks: with_value(looks, f"{_VIEWPOINT}.whitening", [[1e99] * 3] * 3),
    "an endless spread": lambda _, looks: with_value(looks, f"{_VIEWPOINT}.spread", 1e308),
    "a look of a thousand columns": lambda _, looks: with_value(looks, f"{_VIEWPOINT}.whitening", [[1.0] * 1000] * 20),
    "a centre without end": lambda _, looks: with_value(looks, f"{_VIEWPOINT}.centre", [0.5] * 20_000),
    "looks without end": lambda _, looks: with_looks(looks, 20),
    "a survey of another formula": lambda _, looks: with_surveyed(looks, crossed(4, 40, "*")),
    "a survey of a large formula": lambda _, looks: with_surveyed(looks, powered(9, 4)),
    "a survey of many columns": lambda _, looks: with_surveyed(looks, chained(249, "+")),
    "a question without end": lambda _, looks: with_value(looks, f"{_QUESTION}.values", ["9" * 80] * 1_000),
    "ranges without end": lambda _, looks: with_value(looks, f"{_QUESTION}.ranges", [[0, 10**400]] * 300),
    "a range of four thousand digits": lambda _, looks: with_value(looks, f"{_QUESTION}.ranges", [[0, 10**4000]]),
    "a question about nothing": lambda _, looks: with_value(looks, f"{_QUESTION}.subject", 10**400),
    "an endless scale": lambda _, looks: with_value(looks, "survey.columns.1.scale", 1e308),
    "a tiny scale": lambda _, looks: with_value(looks, "survey.columns.1.scale", 5e-324),
    "shares without end": lambda _, looks: with_value(looks, "survey.columns.0.shares", [0.5] * 20_000),
    "a profile without end": lambda _, looks: with_value(looks, f"{_PROFILE}.values", [["9" * 80] * 500] * 2),
    "a profile of many histograms": lambda _, looks: with_value(looks, f"{_PROFILE}.values", [["1"]] * 5_000),
    "a profile's viewpoint of another size": lambda _, looks: with_value(
        looks, f"{_PROFILE}.viewpoint.whitening", [[1.0] * 100] * 100
    ),
    "a profile's endless noise": lambda _, looks: with_value(looks, f"{_PROFILE}.noise_stddev", 1e308),
    "a profile's tiny clip": lambda _, looks: with_value(looks, f"{_PROFILE}.viewpoint.clip", 5e-324),
    "a number of four thousand digits": lambda one, _: with_value(one, "regression.radius", 10**4000),
    "rows without end": lambda one, _: with_value(one, "dataset.rows", 10**4000),
    "a fine grid": lambda one, _: with_value(one, "grid.response_exponent", -600),
    "an endless mu": lambda one, _: with_value(one, "privacy_loss.privacy_parameters.mu", 1e308),
    "a tiny epsilon": lambda one, _: with_value(one, "privacy_loss.privacy_parameters.epsilon", 5e-324),
    "nesting": lambda one, _: with_value(one, "regression.declared_columns.y.fill", inside(900)),
    "levels that are nearly numbers": lambda one, _: with_levels(one, 100, 200),
    "names without end": lambda one, _: with_formula(one, ({"a" * 9_000: NUMERIC}, "a")),
    "declared columns without end": lambda one, _: with_formula(one, (named(2_000), "a")),
    "terms without end": lambda one, _: with_value(one, "regression.terms", [{"name": "a", "columns": []}] * 3_000),
}


# Schema files, of a size


def _repeated(start: bytes, part: bytes, end: bytes) -> Callable[[int], bytes]:
    return lambda size: start + part * ((size - len(start + end)) // len(part)) + end


SCHEMAS: dict[str, Callable[[int], bytes]] = {
    "a key of dots": _repeated(b"", b"a.", b"a = 1"),
    "a key of quoted dots": _repeated(b"", b'"=\\"".', b"a = 1"),
    "a table of dots": _repeated(b"[columns.", b"a.", b"a]"),
    "an inline table of dots": _repeated(b"[columns]\na = {", b"a.", b"a = 1}"),
    "dots after a torn string": _repeated(b"# " + b"'" * 3 + b"\nx = ", b"a.", b"a = 1"),
    "brackets": _repeated(b"x = ", b"[", b""),
    "inline tables": _repeated(b"x = ", b"{a=", b""),
    "empty lists": _repeated(b"x = [", b"[],", b"]"),
    "quotes": _repeated(b"x = ", b'"', b""),
    "torn strings": _repeated(b'x = """', b'\\"""', b""),
    "digits": _repeated(b"x = ", b"9", b""),
    "tables": _repeated(b"", b"[[columns]]\n", b""),
}


def some_schema(chance: Random) -> bytes:
    return chance.choice(list(SCHEMAS.values()))(math.ceil(10 ** chance.uniform(1.5, 4.5)))


def sealed(data: Data) -> str:
    """The text of a file, its checksum made right."""
    data["checksum"] = _checksum(data)
    return json.dumps(data, ensure_ascii=False)


def some_release(chance: Random, one: str, looks: str) -> Data:
    """Any of the shapes, of any size, in a release file."""
    match chance.randrange(3):
        case 0:
            return with_formula(one, some_formula(chance))
        case 1:
            pairs = [chance.choice(EVERY_BLOCK) for _ in range(chance.choice((1, 1, 3, 20)))]
            return with_blocks(one, chance.choice((1, 2, 17, 60, 250, 251)), pairs, chance.choice((1, 300)))
        case _:
            return chance.choice(list(RELEASES.values()))(one, looks)


def some_columns(chance: Random) -> Columns:
    """Declarations that are long in one way or another."""
    number = math.floor(10 ** chance.uniform(0, 3.3))
    return chance.choice(
        (
            named(number),
            named(2, levels(max(2, number))),
            {"a" * number: NUMERIC},
            {"a": {**NUMERIC, "fill": inside(min(number, 900))}},
            {"a": {"type": "categorical", "levels": [f"{n:0199}x" for n in range(number)], "fill": "none"}},
            {"a": {**NUMERIC, "upper": 10**number}},
        )
    )
