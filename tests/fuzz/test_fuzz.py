"""Hostile input: whatever comes in, there is an answer or one sentence that says why not.

``ISR_FUZZ_EXAMPLES`` sets how many cases each test tries; ``make fuzz`` tries many thousands, with fresh seeds.
"""

import ast
import io
import json
import os
import re
import time
import warnings
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from xml.dom import minidom

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fuzz.forgeries import CONSTANT, forged, forgery, judged, opened, run_command, whole_models
from isr.bijections.build import Architecture, build_flow
from isr.bijections.formula import Formulas
from isr.equations import extract
from isr.posterior.priors import parse_prior
from isr.storage import ModelFileError, from_bytes
from isr.tables.bounds import parse_bounds
from isr.tables.delimited import as_cell, from_cell
from isr.tables.files import numeric_columns, read_rows
from isr.tables.tables import Table, read_row, read_table

N = int(os.environ.get("ISR_FUZZ_EXAMPLES", "0"))
SEED = int(os.environ.get("ISR_FUZZ_SEED", "0"))
RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def cases(few: int, share: float = 1.0):
    """So many cases in the fast suite; in the long form the share of ``ISR_FUZZ_EXAMPLES`` that their cost allows."""
    n = max(few, int(share * N))
    return settings(max_examples=n, derandomize=N == 0, database=None, print_blob=True, **RELAXED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@contextmanager
def refusals_allowed():
    """Lets an error pass that is one sentence for the user; any other is a fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's and pandas' own about odd values
        try:
            yield
        except (ValueError, TypeError, OSError) as error:
            if not str(error).strip():
                raise


# Arrays and tables

NUMBERS = st.one_of(
    st.floats(),
    st.sampled_from([0.0, -0.0, 1e-320, 1e-12, 1e12, 1e308, -1e308, np.nan, np.inf, -np.inf]),
)
ODD_THINGS = st.one_of(
    NUMBERS, st.none(), st.text(max_size=5), st.booleans(), st.integers(), st.binary(max_size=3), st.complex_numbers(),
    st.just(object()), st.just(np.datetime64("2020-01-01")), st.lists(st.integers(), max_size=2),
)  # fmt: skip


@st.composite
def odd_arrays(draw):
    rows, columns = draw(st.integers(0, 6)), draw(st.sampled_from([0, 1, 2, 3, 200]))
    kind = draw(
        st.sampled_from(
            ["float64", "float32", "int8", "int64", "uint64", "bool", "complex128", "object", "U3"]
        )
    )
    if kind == "object":
        return np.array(draw(st.lists(st.lists(ODD_THINGS, max_size=3), max_size=4)), dtype=object)
    if kind == "U3":
        return draw(hnp.arrays("U3", (rows, min(columns, 3))))
    if columns == 200:
        return np.full((rows, 200), draw(NUMBERS)).astype("float64")
    return draw(hnp.arrays(kind, (rows, columns), elements=NUMBERS if kind == "float64" else None))


@cases(40)
@given(rows=st.one_of(odd_arrays(), st.lists(st.lists(ODD_THINGS, max_size=3), max_size=4), ODD_THINGS))
def test_any_array_becomes_finite_rows_or_a_sentence(rows):
    with refusals_allowed():
        table = read_table(rows)
        assert isinstance(table, Table)
        assert np.isfinite(table.values).all()
        assert table.values.dtype == np.float64
        assert table.values.shape == (table.n_rows, len(table.names))


@cases(30)
@given(
    bounds=st.one_of(
        ODD_THINGS, st.lists(ODD_THINGS, max_size=3), st.dictionaries(st.text(max_size=2), ODD_THINGS)
    ),
    row=st.one_of(
        ODD_THINGS, st.lists(ODD_THINGS, max_size=3), st.dictionaries(st.text(max_size=2), ODD_THINGS)
    ),
)
def test_any_bounds_priors_and_observations_are_read_or_refused(bounds, row):
    columns = read_table([[0.0, 1.0]], names=["a", "b"]).columns
    for attempt in (
        lambda: parse_bounds(bounds, ("a", "b")),
        lambda: parse_prior(bounds),
        lambda: read_row(row, like=columns),
    ):
        with refusals_allowed():
            attempt()


# Files of rows

NAMES = [
    "a",
    "b",
    "=2+5",
    "@x",
    "-x",
    "'=x",
    "",
    " a",
    "a\n",
    '"',
    "'",
    "1",
    "nan",
    "é",
    "\u202e",
    "\x00",
    "x" * 300,
]
CELLS = [
    *NAMES,
    "0",
    "1.5",
    "-3",
    "1e309",
    "inf",
    "NaN",
    "1,5",
    "0x10",
    "1_000",
    "١",
    "=1+1",
    "True",
    "2020-01-01",
]


@st.composite
def csv_bytes(draw):
    if draw(st.integers(0, 3)) == 0:
        return draw(st.binary(max_size=200))
    separator = draw(st.sampled_from([",", ";", "\t", " ", "|"]))
    lines = [draw(st.lists(st.sampled_from(NAMES) | st.text(max_size=4), max_size=5))]
    lines += draw(st.lists(st.lists(st.sampled_from(CELLS), max_size=5), max_size=5))
    quote = draw(st.sampled_from(["", '"']))
    text = draw(st.sampled_from(["\n", "\r\n", "\r"])).join(
        separator.join(f"{quote}{cell}{quote}" for cell in line) for line in lines
    )
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"]))
    return text.encode(encoding, errors=draw(st.sampled_from(["replace", "ignore"])))


def read_all(path: Path) -> None:
    with refusals_allowed():
        frame = read_rows(path)
        frame = numeric_columns(frame, list(frame.columns), source=path)
        assert np.isfinite(frame.to_numpy()).all()
        assert len(set(frame.columns)) == frame.shape[1]


@cases(60)
@given(data=csv_bytes(), ending=st.sampled_from(["csv", "tsv", "txt", "parquet", "npz", "pq", "xyz"]))
@example(data=b'a,b\n"1,2\n', ending="csv")
@example(data=b"a," + b"x" * 140_000 + b"\n1,2\n", ending="csv")
@example(data=b"PK\x03\x04", ending="npz")
@example(data=b"PAR1PAR1", ending="parquet")
def test_any_file_of_rows_is_read_or_refused(folder, data, ending):
    path = folder / f"rows.{ending}"
    path.write_bytes(data)
    read_all(path)


@st.composite
def damaged(draw, whole: bytes) -> bytes:
    """A file with some bytes changed, cut out or put in."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        how = draw(st.sampled_from(["flip", "cut", "insert", "truncate"]))
        if how == "flip" and data:
            data[place] ^= draw(st.integers(1, 255))
        elif how == "cut":
            del data[place : place + draw(st.integers(1, 20))]
        elif how == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=8))
        else:
            del data[place:]
    return bytes(data)


def some_archive(ending: str) -> bytes:
    buffer = io.BytesIO()
    columns = {"a": np.arange(5.0), "b": np.arange(5)}
    if ending == "npz":
        np.savez(buffer, **columns)
    else:
        pd.DataFrame(columns).to_parquet(buffer)
    return buffer.getvalue()


@cases(40)
@given(data=st.data(), ending=st.sampled_from(["npz", "parquet"]))
def test_a_damaged_archive_of_rows_is_read_or_refused(folder, data, ending):
    path = folder / f"rows.{ending}"
    path.write_bytes(data.draw(damaged(some_archive(ending))))
    read_all(path)


@pytest.mark.parametrize("n_columns", [200, 10**6])
def test_very_many_columns_are_read_or_refused_in_a_moment(folder, n_columns):
    path = folder / "wide.csv"
    path.write_text(
        ",".join(f"c{i}" for i in range(n_columns)) + "\n" + ",".join("1" for _ in range(n_columns)) + "\n"
    )
    if n_columns == 200:
        frame = read_rows(path)
        assert numeric_columns(frame, list(frame.columns), source=path).shape == (1, 200)
    else:
        with pytest.raises(ValueError, match=r"1,000,000 columns, more than 20,000; .* lies on its side"):
            read_rows(path)


@cases(50)
@given(name=st.text(max_size=6) | st.sampled_from(NAMES))
def test_no_name_is_a_formula_in_a_spreadsheet_and_every_name_comes_back(name):
    cell = as_cell(name)
    assert not cell.startswith(("=", "+", "-", "@"))
    assert from_cell(cell) == name


# Files of models


@pytest.fixture(scope="module")
def models():
    return whole_models()


@cases(60)
@given(data=st.data(), which=st.integers(0, 3))
def test_a_damaged_model_is_always_refused(models, data, which):
    changed = data.draw(damaged(models[which]))
    if changed != models[which]:
        with pytest.raises(ModelFileError):
            from_bytes(changed)


def test_a_forged_model_is_refused_or_shown_in_a_moment(models, folder, record_property):
    n, worst = max(300, N), 0.0
    for i in range(n):
        _, seconds = judged(forgery(np.random.default_rng([SEED, i]), models), folder)
        worst = max(worst, seconds)
        assert seconds < 2, f"forgery {i} took {seconds:.1f} s"
    record_property("cases", n)
    record_property("slowest", worst)


SEVEN = {"tuple": ["number", 7]}


def tower(n: int, exponent: int) -> dict:
    return {"tuple": ["pow", tower(n - 1, exponent) if n else SEVEN, exponent]}


def in_formula(tree: dict):
    return lambda content: content["bundle"]["model"]["fields"]["trees"].update(tuple=[tree])


def in_polar(**fields):
    return lambda content: content["bundle"]["model"]["fields"]["bijection"]["fields"].update(fields)


def in_law(text: str):
    return lambda content: content["bundle"]["model"]["fields"]["law"]["dict"]["columns"][0]["dict"].update(
        mean=text
    )


def in_prior(**fields):
    return lambda content: content["bundle"]["model"]["fields"]["prior"][1]["dict"].update(fields)


@pytest.mark.parametrize(
    ("which", "change", "message"),
    [
        (2, in_prior(column=7), r"of the columns \[0, 7\], not of each of 2 variables once"),
        (2, in_prior(column=-0.0), r"of the columns \[0, 0\], not of each"),
        (2, in_prior(parameters=""), "index out of range"),
        (1, in_formula({"tuple": ["pow", SEVEN, 10**9]}), "powers up to 1000000000, beyond 1000"),
        (1, in_formula(tower(40, 7)), "powers up to .*, beyond 1000"),
        (1, in_formula({"tuple": ["number", 10**400]}), "not that of a model"),
        (1, in_formula({"tuple": ["input", 2]}), r"refers to input \[2\], but there are 2"),
        (
            1,
            lambda c: c["bundle"]["model"]["fields"].update(stack=2.0),
            "the stack of its Formulas is 2.0, not int",
        ),
        (3, in_polar(dim=10**9), "the dim of its Polar is 1000000000, not int .counts up to 128"),
        (3, in_polar(centre=3), "the centre of its Polar is 3, not Float"),
        (2, in_law("((7**100)**100)**100"), "holds a number beyond 1e.300"),
        (2, in_law("exp(exp(exp(exp(100))))"), "holds a number beyond 1e.300"),
        (2, in_law("-" * 50_000 + "a"), "is no expression"),
        (2, in_law("+".join("(a*b)" for _ in range(9_000))), "is no expression|more than 10000 parts"),
    ],
)
def test_a_small_file_that_would_take_for_ever_is_refused_at_once(models, which, change, message):
    content, tensors = opened(models[which])
    change(content)
    begun = time.process_time()
    with pytest.raises(ModelFileError, match=message):
        from_bytes(forged(content, tensors))
    assert time.process_time() - begun < 1


# The command line


ARGUMENTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from("a=1,b=2 a=1 a=nan,b=inf a= =, a=1,a=2 1e400 -- -1 *".split()),
)


COMMANDS = ["predict --x", "sample --y", "posterior --y", "show --complexity", "export --lang", "fit --x"]


@cases(5, share=0.05)
@given(
    command=st.sampled_from(
        ["predict --x", "sample --y", "posterior --y", "show --complexity", "export --lang", "fit --x"]
    ),
    words=st.lists(ARGUMENTS, min_size=1, max_size=2),
)
def test_no_argument_makes_a_command_fall_over(models, folder, command, words):
    for number, data in enumerate(models):
        path = folder / f"model-{number}.isr"
        path.write_bytes(data)
        name, option = command.split()
        run_command(name, path, option, *words)


# Names in generated code

BREAKERS = [
    "*/", "/*", "//", "\\", '"""', "'''", "`${process.exit()}`", "</script><script>", "<!--", "-->", "]]>", "\n", "\r",
    "\u2028", "\u202e", "\x00", "??/", "#define", "$\\input{x}$", "}{", "\\end{align*}", "%", "&", "__import__('os')",
    "{{7*7}}", "a", "x", "=1",
]  # fmt: skip
HOSTILE = (
    st.lists(st.sampled_from(BREAKERS) | st.text(max_size=3), min_size=1, max_size=4)
    .map("".join)
    .filter(str.strip)
)


def without_comments(source: str) -> str:
    """C or JavaScript without its comments, which end where the language says they end."""
    return " ".join(re.sub(r"/\*.*?\*/|//[^\n\r\u2028\u2029]*", "", source, flags=re.DOTALL).split())


def tree_of(source: str) -> str:
    """The meaning of Python source: its tree without the docstring."""
    tree = ast.parse(source)
    if ast.get_docstring(tree) is not None:
        del tree.body[0]
    return ast.dump(tree)


NAME_LISTS = re.compile(r"^(?:export const )?([xyXY]_?[Nn](?:ames|AMES)) = (\[.*\]);?$", re.MULTILINE)
SAFE_TAG = re.compile(
    r"(m[a-z]+|p|pre|div|b|br|code)( (xmlns|display|style|class|stretchy|width|mathvariant|form|displaystyle))?"
)
SCRIPTS = {"python": tree_of, "jax": tree_of, "c": without_comments, "javascript": without_comments}


class Tags(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found |= {tag, *(f"{tag} {name}" for name, _ in attrs)}


@pytest.fixture(scope="module")
def two():
    shape = Architecture(n_blocks=1, n_layers=1, library={"constant": 1, "id": 1})
    return build_flow(jax.random.key(0), 2, architecture=shape), Formulas(
        jnp.array([1.0, 2.0]), (CONSTANT,), 1, 1
    )


@cases(8, share=0.05)
@given(names=st.lists(HOSTILE, min_size=2, max_size=2, unique=True), unit=st.sampled_from(BREAKERS))
def test_no_name_breaks_out_of_generated_code(two, names, unit):
    flow, law = two
    hostile = extract(flow, names, units={names[0]: unit})
    symbols = [s.name for s in hostile.forward.inputs]
    written = extract(law, names[:1], names[1:], {names[0]: unit})
    plain_law = extract(law, *[[s.name] for s in (*written.forward.inputs, *written.forward.output_symbols)])
    for one, other in ((hostile, extract(flow, symbols, units={symbols[0]: "m"})), (written, plain_law)):
        for language, meaning in SCRIPTS.items():
            source, plain = one.code(language), other.code(language)
            listed = dict(NAME_LISTS.findall(source))
            if listed:
                assert json.loads(next(iter(listed.values()))) == names
            assert meaning(NAME_LISTS.sub("", source)) == meaning(NAME_LISTS.sub("", plain))
            assert not re.search(r"</script|<!--|[\u2028\u202e\x00]", source)
        assert {tag for tag in Tags(one._repr_html_()).found if not SAFE_TAG.fullmatch(tag)} == set()
        minidom.parseString(one.mathml())
        for line in one.text().splitlines():
            assert line.startswith("#") or re.match(r"[A-Za-z]\w* += ", line, re.ASCII)
        commands = set(re.findall(r"\\[A-Za-z]+", one.latex())) - set(
            re.findall(r"\\[A-Za-z]+", other.latex())
        )
        assert commands <= {"\\text", "\\textbackslash", "\\textless", "\\textgreater", "\\textasciicircum",
                            "\\textasciitilde", "\\textbar", "\\ensuremath", "\\mathrm", "\\_"} | GREEK  # fmt: skip


GREEK = {
    f"\\{letter}"
    for letter in "alpha beta gamma delta theta lambda mu pi sigma omega varepsilon phi rho".split()
}
