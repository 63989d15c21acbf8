"""Display names are free text; symbol names are safe everywhere."""

import builtins
import keyword
import re
import subprocess
import sys

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from isr.tables import check_names, symbol_names

FUNCTION_NAMES = [
    "sin",
    "exp",
    "E",
    "I",
    "pi",
    "log",
    "lambda",
    "S",
    "N",
    "Q",
    "O",
    "beta",
    "gamma",
    "zeta",
    "oo",
]
KEYWORDS = [
    "class",
    "None",
    "double",
    "restrict",
    "let",
    "yield",
    "typeof",
    "size_t",
    "Math",
    "NaN",
    "np",
    "main",
]
HOSTILE = [
    "'; drop table x; --",
    '"quoted"',
    "line\nbreak",
    "<script>alert(1)</script>",
    "*/ int main() { /*",
    "back\\slash",
    "$\\input{secret}$",
    "`rm -rf .`",
    "${process.exit()}",
    "__import__('os')",
    "\x00\x1b[31m",
    "{{ 7 * 7 }}",
    "#",
    "…",
    "🙂",
    "a" * 500,
]

free_text = st.text(min_size=1, max_size=30).filter(lambda text: text.strip())
names_lists = st.lists(
    free_text
    | st.sampled_from(FUNCTION_NAMES + KEYWORDS + HOSTILE)
    | st.from_regex(r"[a-c]_?[0-2]?_?", fullmatch=True),
    unique=True,
    max_size=12,
)


def is_safe(symbol: str) -> bool:
    is_word = re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", symbol) is not None
    return (
        is_word
        and not keyword.iskeyword(symbol)
        and not hasattr(builtins, symbol)
        and not hasattr(sympy, symbol)
    )


@pytest.mark.parametrize("name", FUNCTION_NAMES + KEYWORDS + HOSTILE)
def test_a_symbol_name_is_a_safe_identifier_whatever_the_display_name(name):
    (symbol,) = symbol_names([name])
    assert is_safe(symbol)
    assert symbol != name
    assert sympy.sympify(symbol) == sympy.Symbol(symbol)


@given(names_lists)
@settings(max_examples=300)
def test_symbol_names_are_safe_unique_and_stable(names):
    symbols = symbol_names(names)
    assert len(symbols) == len(names) == len(set(symbols))
    assert all(is_safe(symbol) for symbol in symbols)
    assert symbol_names(names) == symbols
    assert symbol_names(symbols) == symbols


@given(names_lists)
@settings(max_examples=100)
def test_a_safe_name_stays_as_it_is_beside_any_others(names):
    others = [name for name in names if name not in ("x1", "depth_")]
    symbols = symbol_names([*others, "x1", "depth_"])
    assert symbols[-2:] == ("x1", "depth_")


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("x1", "x1"),
        ("y", "y"),
        ("θ", "theta"),
        ("θ₁", "theta1"),
        ("Δt", "Delta_t"),
        ("µ", "mu"),
        ("λ", "lambda_"),
        ("sound speed (m/s)", "sound_speed_m_s"),
        ("é", "e"),
        ("2nd", "v_2nd"),
        ("_hidden", "hidden"),
        ("温度", "v"),
        ("<script>", "script"),
    ],
)
def test_symbol_names_resemble_what_was_written(name, symbol):
    assert symbol_names([name]) == (symbol,)


def test_names_that_reduce_to_the_same_symbol_are_numbered():
    assert symbol_names(["a b", "a-b", "a_b"]) == ("a_b_2", "a_b_3", "a_b")


def test_symbols_the_caller_uses_are_avoided():
    assert symbol_names(["u1", "x"], taken=["u1", "u1_"]) == ("u1_2", "x")


def test_symbol_names_do_not_depend_on_hash_order():
    code = "from isr.tables import symbol_names; print(symbol_names(['a b', 'a-b', 'sin', 'β', '?', '!']))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (["a", "b", "a"], ValueError, r"duplicate names of x: 'a'; give every variable its own name"),
        (["a", ""], ValueError, r"names of x must not be empty or blank, got ''"),
        (["a", " \n"], ValueError, r"must not be empty or blank"),
        (["a", 3], TypeError, r"names of x must be text, got 3 of type int"),
        ("abc", TypeError, r"names of x must be a list of text, got the single text 'abc'; write \['abc'\]"),
    ],
)
def test_names_that_cannot_be_told_apart_or_read_are_refused(names, error, message):
    with pytest.raises(error, match=message):
        check_names(names, what="x")
