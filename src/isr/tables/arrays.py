"""Arrays: what users hold (lists, arrays, pandas) taken apart into columns, and columns that have no density."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from isr.tables.names import check_names, quoted


class RawColumns(NamedTuple):
    """Columns as they came, not yet known to be numeric; ``names`` is None when the input had none."""

    arrays: list[np.ndarray]
    names: tuple[str, ...] | None
    n_rows: int


def take_apart(rows: Any, *, what: str) -> RawColumns:
    """Return the columns of an array, nested lists, a pandas frame or a series (one column)."""
    pandas = sys.modules.get("pandas")  # who holds a frame has imported it; nobody else pays for it
    if pandas is not None and isinstance(rows, pandas.Series):
        rows = rows.to_frame(name=0 if rows.name is None else rows.name)
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        other = [label for label in rows.columns if not isinstance(label, str)]
        if 0 < len(other) < rows.shape[1]:
            raise TypeError(
                f"the columns of {what} must be named by text throughout or not at all, "
                f"got {other[0]!r} of type {type(other[0]).__name__} among the names"
            )
        arrays = [_from_pandas(rows.iloc[:, i], pandas) for i in range(rows.shape[1])]
        return RawColumns(arrays, None if other else check_names(rows.columns, what=what), len(rows))
    if hasattr(rows, "toarray"):
        raise TypeError(f"{what} is a sparse matrix; pass {what}.toarray()")
    if rows is None:
        raise TypeError(f"{what} must be an array, nested lists or a pandas frame, got None")
    _refuse_no_rows(rows, what)
    if isinstance(rows, np.ma.MaskedArray):
        rows = np.ma.filled(rows.astype(np.result_type(rows.dtype, np.float64)), np.nan)
    try:
        array = np.asarray(rows)
    except ValueError:
        raise ValueError(
            f"the rows of {what} differ in length; every row needs one value per column"
        ) from None
    if array.dtype.kind in "US" and not isinstance(rows, np.ndarray):
        # NumPy made text of a mixture; go back, so that the error names the column that holds the text.
        array = np.asarray(rows, dtype=object)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2:
        raise ValueError(
            f"{what} must have rows and columns, got {array.ndim} dimensions (shape {array.shape}); "
            "reshape it to (rows, columns)"
        )
    return RawColumns(list(array.T), None, len(array))


def _refuse_no_rows(rows: Any, what: str) -> None:
    """Raise for what NumPy would take for a single thing: text, mappings, sets, and what can be read only once."""
    if isinstance(rows, str | bytes | Mapping | Set | Iterator) and not hasattr(rows, "toarray"):
        remedy = {Iterator: f"; pass list({what})", Mapping: f"; pass pandas.DataFrame({what})"}
        hint = next((told for kind, told in remedy.items() if isinstance(rows, kind)), "")
        raise TypeError(
            f"{what} must be an array, nested lists or a pandas frame, got {type(rows).__name__}{hint}"
        )


def _from_pandas(series: Any, pandas: Any) -> np.ndarray:
    if isinstance(series.dtype, pandas.CategoricalDtype):
        # Categories may look like numbers, but their order and distance mean nothing.
        return np.asarray(series.astype(str), dtype=np.str_)
    is_numeric = pandas.api.types.is_numeric_dtype(series.dtype)
    if is_numeric and not pandas.api.types.is_complex_dtype(series.dtype):
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    return series.to_numpy()


def to_numbers(array: np.ndarray, *, name: str, what: str) -> np.ndarray:
    """Return the raw column ``name`` of the table ``what`` as float64, or complex128 when it is complex."""
    if array.dtype.kind in "biufc":
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    refuse_times(array, name=name, what=what)
    kind = {"U": "text", "S": "bytes"}.get(array.dtype.kind, str(array.dtype))
    if array.dtype.kind != "O":
        found = f"its type is {kind}, first value {array[0].item()!r}"
    else:
        numbers = np.empty(len(array))
        for row, value in enumerate(array):
            try:
                if isinstance(value, str | bytes):
                    raise TypeError
                numbers[row] = float(value)
            except (TypeError, ValueError):
                found = f"row {row} holds {value!r} of type {type(value).__name__}"
                break
        else:
            return numbers
    raise TypeError(
        f"column {name!r} of {what} is not numeric: {found}; convert it to numbers or leave it out"
    )


def refuse_times(column: Any, *, name: str, what: str) -> None:
    """Raise where a series or array holds dates, times or time spans, which convert to counts of some unit silently."""
    is_period = type(column.dtype).__name__ == "PeriodDtype"
    if is_period or getattr(column.dtype, "kind", "O") in "mM":
        raise TypeError(
            f"column {name!r} of {what} holds dates or times ({column.dtype}), not numbers; convert it to numbers, "
            "such as days since the first row (column - column.min()) / pandas.Timedelta('1D'), or leave it out"
        )


def checked_rows(rows: Any, *, what: str = "X") -> Any:
    """Return rows as they came, once they are known to hold no dates or times, no masked values, and to be rows."""
    _refuse_no_rows(rows, what)
    if np.ma.is_masked(rows):  # scikit-learn would take the values below the mask
        n = int(np.ma.count_masked(rows))
        raise ValueError(f"{what} has {n} masked values; drop these rows or fill them in")
    if hasattr(rows, "dtypes") and hasattr(rows, "columns"):
        if not len(rows.columns):
            raise ValueError(f"{what} has no columns")
        repeated = rows.columns[rows.columns.duplicated()]
        if len(repeated):
            raise ValueError(f"duplicate names of {what}: {repeated[0]!r}; give every variable its own name")
        for i, name in enumerate(rows.columns):
            refuse_times(rows.iloc[:, i], name=str(name), what=what)
    elif hasattr(rows, "dtype"):
        refuse_times(rows, name=str(getattr(rows, "name", None) or f"{what}1"), what=what)
    return rows


# Beyond these the squares of numbers, or their own digits, leave the range of doubles.
LARGEST_SQUARED, LARGEST = 1e150, 1e304


def refuse_extremes(
    values: Float[np.ndarray, "n d"], names: Sequence[str], *, what: str, largest: float = LARGEST_SQUARED
) -> None:
    """Raise where a column's largest number is beyond ``largest``, or closer to zero than its reciprocal."""
    for name, size in zip(names, np.max(np.abs(values), axis=0), strict=True):
        if size > largest or 0 < size < 1 / largest:
            raise ValueError(
                f"the column {name!r} of {what} reaches {size:.3g}{' only' if size < 1 else ''}; numbers between "
                f"{1 / largest:.0e} and {largest:.0e} can be computed with: give it in another unit"
            )


def warn_if_not_finite(predicted: Float[np.ndarray, "n c"], stacklevel: int = 2) -> None:
    """Warn of rows of predictions that are no numbers."""
    n_bad = int(np.sum(~np.isfinite(predicted).all(axis=1)))
    if n_bad:
        warnings.warn(
            f"{n_bad} of {len(predicted)} predictions are not finite; their x lies outside of the model's domain",
            stacklevel=stacklevel + 1,
        )


# Of a column with at least twenty rows for each of its values, and no more values than this, the rows lie on points.
MOST_LEVELS = 50
# Rows that are looked through for different values: more would cost seconds and tell nothing new.
MOST_ROWS = 100_000
# Smallest eigenvalue of a correlation matrix: columns that agree to five digits look the same in single precision.
LEAST_EIGENVALUE = 1e-10


class DegenerateDataWarning(UserWarning):
    """Rows that lie on a set of lower dimension, where no density exists; the message names the columns."""


def warn_if_degenerate(values: Float[np.ndarray, "n d"], names: Sequence[str], *, what: str = "x") -> None:
    """Issue a `DegenerateDataWarning` where finite rows have no density."""
    found = degeneracies(values, names)
    if found:
        warnings.warn(
            f"{what} has no density: {'; '.join(found)}. The fit goes on as far as single precision goes; leave such "
            "columns out, or add the noise that was rounded away",
            DegenerateDataWarning,
            stacklevel=4,
        )


def degeneracies(values: Float[np.ndarray, "n d"], names: Sequence[str]) -> list[str]:
    """Return a sentence for each way in which finite rows have no density."""
    constant = np.ptp(values, axis=0) <= 1e-12 * np.max(np.abs(values), axis=0, initial=0.0)
    some = values[:: -(-len(values) // MOST_ROWS)]
    n_levels = np.array([len(np.unique(column)) for column in some.T])
    together = np.zeros(
        len(names), dtype=bool
    )  # which take part in a linear relation; with few rows nobody can tell
    if 2 <= np.sum(~constant) < len(values):
        varying = values[:, ~constant]
        scaled = varying / np.max(
            np.abs(varying), axis=0
        )  # squares of large and tiny numbers leave the doubles
        eigenvalues, vectors = np.linalg.eigh(np.corrcoef(scaled.T))
        together[~constant] = np.any(np.abs(vectors[:, eigenvalues < LEAST_EIGENVALUE]) > 0.1, axis=1)
    ways = {
        "are constant": constant,
        "take few different values": ~constant & (n_levels <= min(MOST_LEVELS, len(some) // 20)),
        "follow from each other": together,
    }
    return [
        f"the columns {quoted([n for n, is_one in zip(names, which, strict=True) if is_one])} {way}"
        for way, which in ways.items()
        if which.any()
    ]


# A value this many times farther from the median than the middle 90 % of a column are wide is no measurement.
ABSURD = 1e4


@np.errstate(over="ignore", invalid="ignore")
def oddities(values: Float[np.ndarray, "n d"], names: Sequence[str]) -> list[str]:
    """Return a sentence for each constant or repeated column and each column with values far from all others.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(100, 2))
        >>> rows[3, 1], rows[[5, 7], 0] = 1e40, -999
        >>> oddities(rows, ["a", "b"])
        ["column 'a' has the value -999 in 2 rows, ...; pass --missing -999 if it stands for no value",
         "column 'b' has the value 1e+40 in row 4, far from all others; correct it or leave the row out"]
    """
    found = [
        f"column {name!r} is constant and says nothing; leave it out"
        for name, spread in zip(names, np.ptp(values, axis=0), strict=True)
        if spread == 0
    ]
    found += [
        f"column {name!r} counts the rows; unless it is a time, leave it out: --x names the others"
        for name, column in zip(names, values.T, strict=True)
        if len(column) > 2 and column[0] in (0, 1) and np.all(np.diff(column) == 1)
    ]
    first: dict[bytes, str] = {}
    for name, column in zip(names, values.T, strict=True):
        same = first.setdefault(column.tobytes(), name)
        if same != name:
            found.append(f"columns {same!r} and {name!r} hold the same numbers; leave one out")
        low, middle, high = np.quantile(column, [0.05, 0.5, 0.95])
        row = int(np.argmax(np.abs(column - middle)))
        far = column[row]
        others = column[column != far]
        gap = np.min(np.abs(others - far), initial=np.inf)
        if 1 < len(column) - len(others) < len(column) and 0 < 2 * np.ptp(others) < gap:
            found.append(
                f"column {name!r} has the value {far:g} in {len(column) - len(others)} rows, far from all others; "
                f"pass --missing {far:g} if it stands for no value"
            )
        elif 0 < ABSURD * (high - low) < abs(far - middle):
            found.append(
                f"column {name!r} has the value {far:g} in row {row + 1}, far from all others; correct it or "
                "leave the row out"
            )
    return found
