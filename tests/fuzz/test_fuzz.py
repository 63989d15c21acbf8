"""Hostile input: whatever comes in, there is an answer or one sentence that says why not.

``ISR_FUZZ_EXAMPLES`` sets how many cases each test tries; ``make fuzz`` tries many thousands, with fresh seeds.
"""

import ast
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
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fuzz.forgeries import CONSTANT, Forger, forged, judged, opened, run_command, whole_models
from fuzz.hostile_tables import NAMES, damaged, hostile_table, read_all, whole_tables
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


@pytest.fixture(scope="module")
def tables():
    return whole_tables()


def test_any_file_of_rows_is_read_or_refused_in_a_moment(folder, tables, record_property):
    n, n_read = max(300, N), 0
    for i in range(n):
        data, ending = hostile_table(np.random.default_rng([SEED, i]), tables)
        path = folder / f"rows.{ending}"
        path.write_bytes(data)
        begun = time.process_time()
        n_read += read_all(path)
        assert time.process_time() - begun < 2, f"table {i}"
    assert n_read > n / 50
    record_property("cases", n)


def test_the_whole_files_of_rows_are_read(folder, tables):
    read = [read_all(_written(folder / f"whole-{i}.{e}", data)) for i, (data, e) in enumerate(tables)]
    assert read.count(True) >= 4


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.csv", b'a,b\n"1,2\n', "line 2 of .* has 1 values"),
        ("b.csv", b"a," + b"x" * 140_000 + b"\n1,2\n", None),
        ("c.npz", b"PK\x03\x04", "cannot be read as a NumPy archive"),
        ("d.parquet", b"PAR1PAR1", "is not a Parquet file, or damaged"),
        ("e.csv", b"# by hand\r\n#\r\n0.239\r\n0.403", "the first line of .* is empty"),
        ("f.csv", b"a;b\n" + b"9" * 400 + b";1\nx;2\n", "column 'a' of .* is not numeric: row 2 holds 'x'"),
        ("g.csv", b"a;b\n" + b"9" * 400 + b";1\n3;2\n", "column 'a' of .* has an infinite value in row 1"),
    ],
)
def test_a_file_that_was_met_before_is_refused_in_its_own_sentence(folder, name, data, message):
    path = _written(folder / name, data)
    if message is None:
        assert read_all(path)
        return
    with pytest.raises(ValueError, match=message):
        numeric_columns(read_rows(path), ["*"], source=path)


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


def test_a_damaged_model_is_always_refused(models):
    for i in range(max(100, N)):
        whole = models[i % len(models)]
        changed = damaged(np.random.default_rng([SEED, i]), whole)
        if changed != whole:
            with pytest.raises(ModelFileError):
                from_bytes(changed)


def test_a_forged_model_is_refused_or_shown_in_a_moment(models, folder, record_property):
    n, worst, forge = max(300, N), 0.0, Forger(models)
    for i in range(n):
        path = folder / "forged.isr" if i % 20 == 0 else None
        _, seconds = judged(forge(np.random.default_rng([SEED, i])), path)
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
    return lambda content: content["bundle"]["model"]["fields"]["prior"][-1]["dict"].update(fields)


@pytest.mark.parametrize(
    ("which", "change", "message"),
    [
        (2, in_prior(kind="function"), r"not that of a model \('text'\)"),
        (13, in_prior(weights=[1.0]), "weights, means and covariances of a mixture do not fit"),
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
