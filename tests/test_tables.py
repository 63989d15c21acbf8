"""Rows in: every kind of input becomes the same checked table, every fault a sentence that says what to do."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

import isr
from isr.tables import Bounds, Columns, check_paired, parse_bounds, read_row, read_table

ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
FRAME = pd.DataFrame(ROWS, columns=["a", "b"])
COLUMNS = read_table(FRAME, units={"a": "m"}, bounds={"b": (0, 10)}).columns

SAME_ROWS = {
    "lists": ROWS,
    "tuples": tuple(map(tuple, ROWS)),
    "array": np.array(ROWS),
    "float32": np.array(ROWS, dtype=np.float32),
    "integers": np.array(ROWS, dtype=np.int8),
    "objects": np.array(ROWS, dtype=object),
    "fortran order": np.asfortranarray(ROWS),
    "jax": jnp.array(ROWS),
    "masked, nothing hidden": np.ma.masked_array(ROWS),
    "frame": FRAME,
    "frame without names": pd.DataFrame(ROWS),
    "frame of nullable numbers": FRAME.astype("Float64"),
    "frame of mixed numbers": FRAME.astype({"a": np.int32}),
    "frame backed by Arrow": FRAME.astype("float64[pyarrow]"),
}


@pytest.mark.parametrize("rows", SAME_ROWS.values(), ids=SAME_ROWS.keys())
def test_every_kind_of_rows_gives_the_same_table(rows):
    table = read_table(rows)
    assert_array_equal(table.values, ROWS)
    assert table.values.dtype == np.float64
    assert table.names in [("a", "b"), ("x1", "x2")]
    assert (table.n_rows, table.n_columns) == (3, 2)


@given(
    arrays(np.float64, st.tuples(st.integers(1, 20), st.integers(1, 5)), elements=st.floats(-1e300, 1e300))
)
def test_values_are_kept_to_the_last_bit(rows):
    assert_array_equal(read_table(rows).values, rows)
    assert_array_equal(read_table(pd.DataFrame(rows)).values, rows)


def test_a_table_cannot_be_changed_and_does_not_follow_its_source():
    source = np.array(ROWS)
    table = read_table(source)
    source[0, 0] = 99.0
    assert table.values[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        table.values[0, 0] = 7.0
    with pytest.raises(AttributeError):
        table.values = source


@pytest.mark.parametrize(
    "rows", [[1, 2, 3], np.arange(1, 4), pd.Series([1, 2, 3])], ids=["list", "array", "series"]
)
def test_one_dimension_is_one_column(rows):
    table = read_table(rows, what="y")
    assert table.names == ("y1",)
    assert_array_equal(table.values, [[1], [2], [3]])


def test_a_series_brings_its_name():
    assert read_table(pd.Series([1.0], name="speed")).names == ("speed",)


def test_complex_columns_become_real_and_imaginary_neighbours_that_share_the_unit():
    frame = pd.DataFrame({"p": [1 + 2j, 3 - 4j], "r": [5.0, 6.0]})
    table = read_table(frame, units={"p": "Pa", "r": "km"}, bounds={"p_im": (-4, 4)})
    assert table.names == ("p_re", "p_im", "r")
    assert table.units == ("Pa", "Pa", "km")
    assert table.bounds == Bounds(low=(-np.inf, -4.0, -np.inf), high=(np.inf, 4.0, np.inf))
    assert_array_equal(table.values, [[1, 2, 5], [3, -4, 6]])
    again = read_table(np.array([[1 + 2j], [3 - 4j]]), names=["p"])
    assert_array_equal(read_table([[1 - 1j]], like=again.columns).values, [[1, -1]])
    assert_array_equal(read_row([2 + 3j], like=again.columns), [2, 3])


def test_names_units_and_bounds_travel_with_the_rows():
    table = read_table(ROWS, names=["θ", "any text"], units={"θ": "rad"}, bounds=[(0, None), None])
    assert table.names == ("θ", "any text")
    assert table.units == ("rad", None)
    assert table.bounds is not None
    assert table.bounds.pairs() == ((0.0, None), (None, None))
    frame = pd.DataFrame(table.values, columns=list(table.names))
    assert read_table(frame, like=table.columns).columns == table.columns


BAD_ROWS = {
    "nan": (
        [[1, np.nan], [np.nan, np.inf]],
        ValueError,
        r"NaN or infinite.*'x1' in 1 of 2 rows, column 'x2' in 2 of 2",
    ),
    "infinite": (
        [[1, 2], [-np.inf, 3]],
        ValueError,
        r"x contains NaN or infinite values: column 'x1' in 1 of 2 rows",
    ),
    "hidden": (np.ma.masked_array(ROWS, mask=[[1, 0]] * 3), ValueError, r"column 'x1' in 3 of 3 rows"),
    "missing": (
        pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}),
        ValueError,
        r"column 'a' in 1 of 2 rows",
    ),
    "no rows": ([], ValueError, r"x is empty: it has 0 rows and 1 columns"),
    "no columns": (np.zeros((5, 0)), ValueError, r"x is empty: it has 5 rows and 0 columns"),
    "ragged": ([[1, 2], [3]], ValueError, r"the rows of x differ in length"),
    "scalar": (3.0, ValueError, r"must have rows and columns, got 0 dimensions \(shape \(\)\)"),
    "cube": (
        np.zeros((2, 3, 4)),
        ValueError,
        r"got 3 dimensions \(shape \(2, 3, 4\)\); reshape it to \(rows, columns\)",
    ),
    "text": (
        np.array([["a", "b"]]),
        TypeError,
        r"column 'x1' of x is not numeric: its type is text, first value 'a'",
    ),
    "mixed": ([[1, "2"], [3, 4]], TypeError, r"column 'x2' of x is not numeric: row 0 holds '2' of type str"),
    "none": (
        [[1, 2], [3, None]],
        TypeError,
        r"column 'x2' of x is not numeric: row 1 holds None of type NoneType",
    ),
    "objects": (np.array([[{}]], dtype=object), TypeError, r"row 0 holds \{\} of type dict"),
    "dates": (np.array([["2020-01-01"]], dtype="M8[D]"), TypeError, r"column 'x1' of x holds dates or times"),
    "text column": (
        FRAME.assign(b="no"),
        TypeError,
        r"column 'b' of x is not numeric: row 0 holds 'no' of type str",
    ),
    "categories": (
        FRAME.astype({"b": "category"}),
        TypeError,
        r"column 'b' of x is not numeric: its type is text",
    ),
    "records": (np.zeros(2, dtype=[("a", float)]), TypeError, r"column 'x1' of x is not numeric"),
    "sparse": (csr_array(np.eye(2)), TypeError, r"x is a sparse matrix; pass x.toarray\(\)"),
    "dictionary": ({"a": [1]}, TypeError, r"got dict; pass pandas.DataFrame\(x\)"),
    "generator": ((row for row in ROWS), TypeError, r"got generator; pass list\(x\)"),
    "nothing": (None, TypeError, r"x must be an array, nested lists or a pandas frame, got None"),
    "file name": ("rows.csv", TypeError, r"x must be an array, nested lists or a pandas frame, got str"),
    "twin columns": (pd.DataFrame(ROWS, columns=["a", "a"]), ValueError, r"duplicate names of x: 'a'"),
    "half named": (
        pd.DataFrame(ROWS, columns=["a", 7]),
        TypeError,
        r"by text throughout or not at all, got 7 of type int",
    ),
    "clash of parts": (pd.DataFrame({"p": [1j], "p_re": [1.0]}), ValueError, r"duplicate names of x: 'p_re'"),
}


@pytest.mark.parametrize(("rows", "error", "message"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_bad_rows_are_refused_with_a_sentence_that_says_where(rows, error, message):
    with pytest.raises(error, match=message):
        read_table(rows)


BAD_ARGUMENTS = {
    "too few rows": ({"min_rows": 10}, ValueError, r"x has 3 rows, too few: at least 10 are needed"),
    "too few names": ({"names": ["a"]}, ValueError, r"x has 2 columns but 1 names: 'a'"),
    "twin names": ({"names": ["a", "a"]}, ValueError, r"duplicate names of x: 'a'"),
    "unit of nothing": (
        {"units": {"q": "m"}},
        ValueError,
        r"unknown columns 'q'; the columns of x are 'x1', 'x2'",
    ),
    "unit not text": ({"units": {"x1": 1}}, TypeError, r"the unit of 'x1' must be text such as 'm/s', got 1"),
    "outside": (
        {"bounds": {"x2": (0, 5)}},
        ValueError,
        r"'x2' of x has the value 6.0 in row 2, above its upper bound 5.0",
    ),
    "outside, below": (
        {"bounds": [(2, None), None]},
        ValueError,
        r"value 1.0 in row 0, below its lower bound 2.0 \(1 of 3",
    ),
    "like and names": ({"like": COLUMNS, "names": ["a", "b"]}, TypeError, r"give either like, or names"),
}


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS.keys())
def test_arguments_that_do_not_fit_the_rows_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        read_table(ROWS, **arguments)


def test_later_rows_take_over_the_columns_of_the_first():
    for rows in (ROWS, FRAME, pd.DataFrame(ROWS)):
        assert read_table(rows, like=COLUMNS).columns is COLUMNS


MISMATCHES = {
    "reordered": (
        FRAME[["b", "a"]],
        r"another order than expected: column 1 is 'b' where 'a' should be; pass x\[\['a', 'b'\]\]",
    ),
    "renamed": (FRAME.rename(columns={"b": "c"}), r"do not match: missing 'b', unexpected 'c'"),
    "too narrow": ([1.0, 2.0], r"x has 1 column, expected 2: 'a', 'b'; write a single row as \[\[...\]\]"),
    "too wide": (np.zeros((2, 3)), r"x has 3 columns, expected 2: 'a', 'b'"),
    "complex": ([[1j, 2.0]], r"x has 4 columns, expected 2"),
    "outside": ([[1.0, 11.0]], r"column 'b' of x has the value 11.0 in row 0, above its upper bound 10.0"),
    "nan": ([[1.0, np.nan]], r"column 'b' in 1 of 1 rows"),
}


@pytest.mark.parametrize(("rows", "message"), MISMATCHES.values(), ids=MISMATCHES.keys())
def test_later_rows_that_do_not_match_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        read_table(rows, like=COLUMNS)


def test_names_given_for_a_frame_must_be_its_own():
    assert read_table(FRAME, names=["a", "b"]).names == ("a", "b")
    with pytest.raises(ValueError, match="missing 'c', unexpected 'a'"):
        read_table(FRAME, names=["c", "b"])


ONE_ROW = {
    "list": [0.5, 1.5],
    "array": np.array([0.5, 1.5]),
    "jax": jnp.array([0.5, 1.5]),
    "row of a matrix": [[0.5, 1.5]],
    "mapping, any order": {"b": 1.5, "a": 0.5},
    "series": pd.Series({"b": 1.5, "a": 0.5}),
    "series without names": pd.Series([0.5, 1.5]),
    "frame": pd.DataFrame({"a": [0.5], "b": [1.5]}),
}


@pytest.mark.parametrize("row", ONE_ROW.values(), ids=ONE_ROW.keys())
def test_a_single_row_can_be_written_in_many_ways(row):
    assert_array_equal(read_row(row, like=COLUMNS), [0.5, 1.5])


def test_a_number_is_a_row_of_one_column():
    assert_array_equal(read_row(2, like=read_table([1.0]).columns), [2.0])


BAD_ROW = {
    "two rows": (ROWS, ValueError, r"y must be a single row, got 3 rows"),
    "unknown name": ({"a": 1, "c": 2}, ValueError, r"missing 'b', unexpected 'c'"),
    "missing name": ({"a": 1}, ValueError, r"y has 1 column, expected 2"),
    "text": ([1, "2"], TypeError, r"column 'b' of y is not numeric: row 0 holds '2'"),
    "too short": ([1], ValueError, r"y has 1 column, expected 2: 'a', 'b'"),
}


@pytest.mark.parametrize(("row", "error", "message"), BAD_ROW.values(), ids=BAD_ROW.keys())
def test_a_bad_single_row_is_refused(row, error, message):
    with pytest.raises(error, match=message):
        read_row(row, like=COLUMNS)


def test_paired_tables_need_as_many_rows_and_names_of_their_own():
    x, y = read_table(ROWS), read_table([1.0, 2.0, 3.0], what="y")
    check_paired(x, y)
    with pytest.raises(
        ValueError, match="x has 3 rows but y has 2; row i of one must belong to row i of the other"
    ):
        check_paired(x, read_table([1.0, 2.0], what="y"))
    with pytest.raises(ValueError, match="x and y share the column names 'x1'; rename one of them"):
        check_paired(x, read_table([1.0, 2.0, 3.0], names=["x1"]))


def test_bounds_can_be_written_as_mapping_or_pairs():
    expected = Bounds(low=(0.0, -np.inf), high=(1.0, 5.0))
    assert parse_bounds({"a": (0, 1), "b": (None, 5)}, ["a", "b"]) == expected
    assert parse_bounds([(0, 1), (-np.inf, 5)], ["a", "b"]) == expected
    assert parse_bounds(np.array([[0, 1], [-np.inf, 5]]), ["a", "b"]) == expected
    assert parse_bounds(expected, ["a", "b"]) == expected


def test_bounds_that_bound_nothing_are_none():
    assert parse_bounds(None, ["a"]) is None
    assert parse_bounds({}, ["a"]) is None
    assert parse_bounds([(None, None)], ["a"]) is None


def test_a_value_on_the_bound_is_inside():
    assert read_table([[0.0], [1.0]], bounds=[(0, 1)]).n_rows == 2


BAD_BOUNDS = {
    "turned round": ([(2, 1)], ValueError, r"bounds of 'a' must have low < high, got low=2 and high=1"),
    "no width": ([(1, 1)], ValueError, r"must have low < high"),
    "nan": ([(np.nan, 1)], ValueError, r"bounds of 'a' must be a pair \(low, high\) of numbers or None"),
    "text": ([("0", 1)], ValueError, r"pair \(low, high\) of numbers or None, got \('0', 1\)"),
    "three": ([(0, 1, 2)], ValueError, r"got \(0, 1, 2\)"),
    "number": ([3], ValueError, r"got 3"),
    "too many": (
        [(0, 1), (0, 1)],
        ValueError,
        r"2 bounds for 1 columns; give one \(low, high\) pair for each column",
    ),
    "unknown": ({"q": (0, 1)}, ValueError, r"bounds for unknown columns 'q'; the columns are 'a'"),
    "no list": (3, TypeError, r"bounds must be a mapping or a list of pairs, got int"),
}


@pytest.mark.parametrize(("bounds", "error", "message"), BAD_BOUNDS.values(), ids=BAD_BOUNDS.keys())
def test_bad_bounds_are_refused(bounds, error, message):
    with pytest.raises(error, match=message):
        parse_bounds(bounds, ["a"])


def test_columns_need_one_name_unit_and_bound_each():
    with pytest.raises(ValueError, match="2 names, 1 units and 2 bounds"):
        Columns(("a", "b"), (None,))


@pytest.mark.parametrize("estimator", [isr.LawRegressor(), isr.EQLRegressor(), isr.SymbolicFlow()])
def test_what_is_masked_or_no_table_is_refused_by_regressors_and_densities_too(estimator):
    hidden = np.ma.masked_array(np.ones((6, 2)), mask=[[1, 0]] * 6)
    with pytest.raises(ValueError, match="X has 6 masked values; drop these rows or fill them in"):
        estimator.fit(hidden, np.ones(6))
    with pytest.raises(TypeError, match=r"got zip; pass list\(X\)"):
        estimator.fit(zip(range(6), range(6), strict=True), np.ones(6))
    if not isinstance(estimator, isr.SymbolicFlow):
        with pytest.raises(ValueError, match="y has 6 masked values"):
            estimator.fit(np.ones((6, 2)), hidden)
        with pytest.raises(ValueError, match="y contains NaN or infinite values; drop these rows"):
            estimator.fit(np.ones((6, 2)), np.array([None] * 6))


@pytest.mark.parametrize("seed", [-1, 1.5, "a", np.random.default_rng(0)])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(ValueError, match="random_state must be a whole number from 0, a numpy RandomState"):
        isr.LawRegressor(random_state=seed).fit(np.eye(6), np.ones(6))
