"""Rows from files: the same whatever the format, and a sentence for everything that can be wrong with them."""

import datetime

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isr
from isr.report import gather
from isr.tables.arrays import oddities
from isr.tables.delimited import Layout
from isr.tables.files import match_columns, numeric_columns, read_columns, read_rows

FRAME = pd.DataFrame({"depth": [200.0, 210.5, 220.25], "p1": [1.0, -2.0, 3e-7]})


def write(path, frame):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".npz":
        np.savez(path, **{name: frame[name].to_numpy() for name in frame})
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.parquet", "rows.npz"])
def test_every_format_gives_the_same_rows(name, tmp_path):
    path = write(tmp_path / name, FRAME)
    pd.testing.assert_frame_equal(numeric_columns(read_rows(path), list(FRAME), source=path), FRAME)


@pytest.mark.parametrize("text", ["a;b\n1;2\n", "\ufeffa, b\n1, 2\n", "a\tb\n1\t2\n", '"a",b\r\n1,2\r\n'])
def test_separators_marks_and_line_ends_are_told_apart(text, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8", newline="")
    assert read_rows(path).to_dict("list") == {"a": [1], "b": [2]}


def test_matrices_and_complex_arrays_become_columns(tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, x=np.ones((3, 2)), p=np.full(3, 1 + 2j))
    assert read_rows(path).iloc[0].to_dict() == {"x1": 1.0, "x2": 1.0, "p_re": 1.0, "p_im": 2.0}


def test_a_text_column_nobody_asked_for_does_no_harm(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("site,site,a\nnorth,x,1\n")
    assert numeric_columns(read_rows(path), ["a"], source=path).to_dict("list") == {"a": [1.0]}
    with pytest.raises(ValueError, match="has several columns called 'site'; give every column its own name"):
        numeric_columns(read_rows(path), ["site"], source=path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize(("delimiter", "decimal"), [(";", ","), ("\t", ","), (",", "."), (";", ".")])
def test_how_a_text_file_is_written_is_guessed_and_may_be_said(encoding, delimiter, decimal, tmp_path):
    path, expected = tmp_path / "rows.csv", pd.DataFrame({"größe": [1.5, -2.25], "b": [3.0, 4e-3]})
    path.write_text(expected.to_csv(index=False, sep=delimiter, decimal=decimal), encoding=encoding)
    for layout in (None, Layout(delimiter, decimal, encoding)):
        frame = read_rows(path, layout)
        pd.testing.assert_frame_equal(numeric_columns(frame, list(expected), source=path), expected)
        said = 0 if layout else (delimiter != ",") + (decimal == ",") + (encoding in ("cp1252", "utf-16"))
        assert len(frame.attrs["notes"]) == said


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        (
            Layout(delimiter=";;"),
            "the delimiter must be one character, not the one before decimals, got ';;'",
        ),
        (Layout(delimiter=",", decimal=","), "got ','"),
        (
            Layout(encoding="klingon"),
            "there is no encoding 'klingon'; such as utf-8, cp1252 or utf-16 are known",
        ),
    ],
)
def test_a_layout_that_cannot_be_is_refused(layout, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        read_rows(write(tmp_path / "rows.csv", FRAME), layout)


def test_excel_gives_the_same_rows(tmp_path):
    pytest.importorskip("openpyxl")
    FRAME.to_excel(tmp_path / "rows.xlsx", index=False)
    frame = numeric_columns(read_rows(tmp_path / "rows.xlsx"), list(FRAME), source="rows.xlsx")
    pd.testing.assert_frame_equal(frame, FRAME)
    (tmp_path / "bad.xlsx").write_bytes(b"PK")
    with pytest.raises(ValueError, match="is not an Excel file, or damaged"):
        read_rows(tmp_path / "bad.xlsx")


TABLES = {
    "units": ("rows.csv", "a,b\nm,s\n1,2\n3,4\n", {"a": [1.0, 3.0], "b": [2.0, 4.0]}),
    "no units": ("rows.csv", "a,b\n,2\n3,4\n", None),
    "comments": ("rows.csv", "# by hand\n# twice\na,b\n1,2\n", {"a": [1.0], "b": [2.0]}),
    "names behind a mark": ("rows.txt", "# a b\n1 2\n3 4\n", {"a": [1.0, 3.0], "b": [2.0, 4.0]}),
    "spaces": ("rows.dat", "  a    b\n 1.0  2\n 3.0  4\n", {"a": [1.0, 3.0], "b": [2.0, 4.0]}),
    "an index": ("rows.csv", ",a,b\n0,1,2\n1,3,4\n2,5,6\n", {"a": [1.0, 3.0, 5.0], "b": [2.0, 4.0, 6.0]}),
    "a title": ("rows.csv", "Plant 4,,\nby: Mia\n\na,b,c\n1,2,3\n", {"a": [1.0], "b": [2.0], "c": [3.0]}),
    "a title, commas": ("rows.csv", "Plant 4\na;b\nm;s\n1,5;2\n2;3\n", {"a": [1.5, 2.0], "b": [2.0, 3.0]}),
    "facts": ("rows.csv", "date,2024-05-01\na,b,c\n1,2,3\n3,4,5\n", {"a": [1, 3], "b": [2, 4], "c": [3, 5]}),
    "no title": ("rows.csv", "x\n1.5\n2.5\n", {"x": [1.5, 2.5]}),
    "a name in two lines": ("rows.csv", '"a\n(m)",b\n1,2\n', {"a (m)": [1.0], "b": [2.0]}),
}


@pytest.mark.parametrize(("name", "text", "expected"), TABLES.values(), ids=TABLES.keys())
def test_tables_are_read_as_people_write_them(name, text, expected, tmp_path):
    (tmp_path / name).write_text(text)
    frame = read_rows(tmp_path / name)
    if expected is None:
        assert len(frame) == 2
        assert frame.attrs["units"] == {}
    else:
        assert numeric_columns(frame, list(frame), source=name).to_dict("list") == expected


def test_thousands_percent_and_missing_values_are_told(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('a,b,c\n"1,234.50",5 %,-999\n12.25,6.5%,2\n')
    with pytest.warns(
        UserWarning, match=r"'a' is read without the marks .* 1,234.50 is 1234.5|'b' is read in percent"
    ):
        rows = numeric_columns(
            read_rows(path, Layout(missing=("-999",))), ["a", "b", "c"], source=path, dropna=True
        )
    assert rows.to_dict("list") == {"a": [12.25], "b": [6.5], "c": [2.0]}
    path.write_text("a;b\n1,234;2.5\n")  # decimals or thousands: nobody can tell
    with pytest.raises(ValueError, match="pass --decimal , if commas stand before decimals"):
        read_columns(path, ["a"])


def test_a_unit_that_the_name_says_itself_is_not_said_twice(tmp_path):
    (tmp_path / "rows.csv").write_text("T (K),p\nK,bar\n300,1\n310,2\n")
    assert read_rows(tmp_path / "rows.csv").attrs["units"] == {"p": "bar"}


def test_a_title_above_the_names_of_a_sheet_is_left_out(tmp_path):
    pytest.importorskip("openpyxl")
    rows = [
        ["Pilot plant", None, None],
        [None, None, None],
        ["run", "mass (g)", None],
        [1, 2.5, None],
        [2, 3.5, None],
    ]
    pd.DataFrame(rows).to_excel(tmp_path / "rows.xlsx", index=False, header=False)
    frame = read_rows(tmp_path / "rows.xlsx")
    assert frame.to_dict("list") == {"run": [1, 2], "mass (g)": [2.5, 3.5]}
    assert frame.attrs["notes"] == ["the first lines, above the names, left out"]


def test_a_single_column_of_decimal_commas_is_told_what_to_pass(tmp_path):
    (tmp_path / "rows.csv").write_text("x\n1,5\n2,5\n")
    with pytest.raises(ValueError, match=r"names 1 column; .* pass --delimiter ';'"):
        read_rows(tmp_path / "rows.csv")
    assert read_rows(tmp_path / "rows.csv", Layout(delimiter=";"))["x"].tolist() == [1.5, 2.5]


def test_of_several_sheets_the_one_with_numbers_is_read_and_said(tmp_path):
    pytest.importorskip("openpyxl")
    path = tmp_path / "rows.xlsx"
    with pd.ExcelWriter(path) as book:
        pd.DataFrame({"note": ["by hand"]}).to_excel(book, sheet_name="About", index=False)
        pd.DataFrame({"a": ["m", 1.0, 2.0]}).to_excel(book, sheet_name="Runs", index=False)
    frame = read_rows(path)
    assert frame.attrs["notes"] == ["sheet 'Runs' of 'About', 'Runs'", "units from the line below the names"]
    assert numeric_columns(frame, ["a"], source=path)["a"].tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match=r"no sheet 'Run' \(did you mean 'Runs'\?\)"):
        read_rows(path, Layout(sheet="Run"))


def test_dates_become_days_and_rows_without_a_value_are_left_out_where_that_is_asked_for(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("when,a\n2024-01-03,1\n2024-01-01 12:00,\n2024-01-02,3\n")
    rows = numeric_columns(read_rows(path), ["when", "a"], source=path, dropna=True, dates=True)
    assert rows.to_dict("list") == {"when": [1.5, 0.5], "a": [1.0, 3.0]}
    with pytest.raises(ValueError, match=r"every row of .* lacks a value in 'a'; leave the empty column out"):
        numeric_columns(pd.DataFrame({"a": [np.nan]}), ["a"], source="rows", dropna=True)


def test_constant_repeated_and_absurd_columns_are_told():
    rows = np.random.default_rng(0).normal(size=(50, 4))
    rows[:, 1], rows[:, 2], rows[7, 3] = 2.0, rows[:, 0], 1e40
    assert oddities(rows, list("abcd")) == [
        "column 'b' is constant and says nothing; leave it out",
        "columns 'a' and 'c' hold the same numbers; leave one out",
        "column 'd' has the value 1e+40 in row 8, far from all others; correct it or leave the row out",
    ]


def test_patterns_stand_for_columns_and_a_name_goes_before_a_pattern():
    assert match_columns(["p1", "p2", "q*"], ["p*", "q*", "p1"], source="rows") == ["p1", "p2", "q*"]


CONTENTS = {
    "no rows": ("a,b\n", "has 0 rows and 2 columns"),
    "nothing": ("", "rows.csv is empty; it needs a line of column names"),
    "short row": ("a,b\n1,2\n3\n", "line 3 of .*rows.csv has 1 values, but the first line names 2 columns"),
    "long row": ("a,b\n1,2\n3,4\n5,6,7\n", "line 4 of .*rows.csv has 3 values, but the first line names 2"),
    "all rows long": ("a,b\n1,2,3\n4,5,6\n", "line 2 of .*rows.csv has 3 values"),
    "no names": ("1,2\n3,4\n", "the first line of .*rows.csv holds numbers; it must hold the names"),
    "twice": ("a,a,b\n1,2,3\n", "has several columns called 'a'"),
    "text": ("a,b\n1,2\n1,oops\n", "column 'b' of .*rows.csv is not numeric: row 2 holds 'oops'"),
    "commas": ("a;b\n1,5;2.5\n", "row 1 holds '1,5' .*; pass --decimal , if commas stand before decimals"),
    "dates": (
        "a,b\n2024-01-01,2\n2024-01-02,3\n",
        "column 'a' of .* holds dates .*; leave it out of --x and --y, or pass --dates",
    ),
    "no values": ("a,b\n,2\n,3\n", "column 'a' of .* has no value in row 1 .* or pass --dropna"),
    "missing": ("a,b\n1,2\n,3\n", r"column 'a' of .* has no value in row 2 \(1 of 2 rows"),
    "infinite": ("a,b\n1,2\ninf,3\n", "column 'a' of .* has an infinite value in row 2"),
}


@pytest.mark.parametrize(("content", "sentence"), CONTENTS.values(), ids=CONTENTS.keys())
def test_what_is_wrong_with_a_csv_file_is_said(content, sentence, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=sentence):
        numeric_columns(read_rows(path), ["a", "b"], source=path)


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("rows.csv", b"a,b\n1,\x81\n", "is not text in cp1252 .*; pass --encoding with the one it has"),
        ("rows.ods", b"PK", "cannot tell what .*rows.ods holds from its ending '.ods'; known: .csv"),
        ("rows.parquet", b"not parquet", "is not a Parquet file, or damaged"),
        ("rows.npz", b"not an archive", "cannot be read as a NumPy archive"),
    ],
)
def test_a_file_of_another_kind_is_refused(name, data, sentence, tmp_path):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ValueError, match=sentence):
        read_rows(path)


def test_arrays_of_different_lengths_are_refused(tmp_path):
    np.savez(tmp_path / "rows.npz", a=np.ones(3), b=np.ones(2))
    with pytest.raises(ValueError, match=r"differ in length \(a 3, b 2\)"):
        read_rows(tmp_path / "rows.npz")


def test_a_pickle_in_an_archive_is_not_opened(tmp_path):
    np.savez(tmp_path / "rows.npz", a=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="cannot be read as a NumPy archive"):
        read_rows(tmp_path / "rows.npz")


def test_a_missing_file_or_column_names_its_neighbour(tmp_path):
    path = write(tmp_path / "rows.csv", FRAME)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*row.csv \(did you mean 'rows.csv'\?\)"):
        read_rows(tmp_path / "row.csv")
    with pytest.raises(
        ValueError, match=r"no column 'Dept' \(did you mean 'depth'\?\); its columns are 'depth', 'p1'"
    ):
        numeric_columns(read_rows(path), ["Dept"], source=path)
    with pytest.raises(IsADirectoryError, match="is a folder; name the file inside it"):
        read_rows(tmp_path)


def test_a_parquet_file_with_damaged_notes_on_its_columns_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})
    table = pa.Table.from_pandas(frame)
    notes = table.schema.metadata[b"pandas"].replace(b"numpy_type", b"mumpy_type")
    pq.write_table(table.replace_schema_metadata({b"pandas": notes}), path)
    with pytest.raises(ValueError, match="is not a Parquet file, or damaged"):
        read_rows(path)


DAYS = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-05"])
TIMES = {
    "dates": DAYS,
    "a missing date": pd.to_datetime(["2020-01-01", None, "2020-01-05"]),
    "dates with a zone": DAYS.tz_localize("UTC"),
    "time spans": DAYS - DAYS[0],
    "days": DAYS.date,
    "times of day": [datetime.time(1, 2)] * 3,
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES.keys())
def test_dates_and_times_in_a_parquet_file_are_refused_and_never_become_numbers(times, tmp_path):
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"a": [1.0, 2.0, 3.0], "when": times}).to_parquet(path)
    with pytest.raises(
        (TypeError, ValueError), match=r"column 'when' of .*rows.parquet (holds dates|is not numeric)"
    ):
        numeric_columns(read_rows(path), ["a", "when"], source=path)


def test_estimators_and_reports_take_no_dates_for_numbers():
    days = pd.DataFrame({"when": pd.date_range("2020-01-01", periods=50)})
    flow = isr.build_flow(jax.random.key(0), 1)
    for attempt in (
        lambda: isr.SymbolicFlow().fit(days),
        lambda: isr.EQLRegressor().fit(days, np.arange(50.0)),
        lambda: isr.ConditionalISR().fit(days, np.arange(50.0)),
        lambda: gather(flow, data=days, checks=False),
    ):
        with pytest.raises(TypeError, match=r"'when' of .* holds dates or times"):
            attempt()
    for y in (days["when"], days["when"].to_numpy(), days.to_numpy() - days.to_numpy()[0]):
        with pytest.raises(TypeError, match="of y holds dates or times"):
            isr.EQLRegressor().fit(np.ones((50, 1)), y)


def test_a_sign_among_decimal_commas_is_named_and_may_stand_for_no_value(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a;b\n1,5;2,25\n-;3,5\n2,5;-4,75\n")
    with pytest.raises(
        ValueError, match=r"'a' of .* is not numeric: row 2 holds '-' \(1 of 3 .*; pass --missing -"
    ):
        numeric_columns(read_rows(path), ["a"], source=path)
    frame = read_rows(path, Layout(missing=("-",)))
    assert numeric_columns(frame, ["a", "b"], source=path, dropna=True).to_numpy().tolist() == [
        [1.5, 2.25],
        [2.5, -4.75],
    ]
