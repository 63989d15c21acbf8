"""Tables: the user's rows, checked once, with the names, units and bounds of their columns; and their split.

A row is a sample and a column a variable, as in scikit-learn; models turn this round to batch-last themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from isr.tables.arrays import take_apart, to_numbers
from isr.tables.bounds import Bounds, parse_bounds
from isr.tables.names import check_names, quoted


@dataclasses.dataclass(frozen=True)
class Columns:
    """What is known of the columns without the rows: names, units (None where not given), and bounds or None.

    Example:
        >>> Columns(("depth", "speed"), ("m", None)).names
        ('depth', 'speed')
    """

    names: tuple[str, ...]
    units: tuple[str | None, ...]
    bounds: Bounds | None = None

    def __post_init__(self) -> None:
        check_names(self.names)
        n_bounds = len(self.names) if self.bounds is None else len(self.bounds.low)
        if not len(self.names) == len(self.units) == n_bounds:
            raise ValueError(
                f"{len(self.names)} names, {len(self.units)} units and {n_bounds} bounds; each column needs one of each"
            )

    def __len__(self) -> int:
        return len(self.names)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Checked, finite, read-only rows with their columns; made by `read_table`.

    Example:
        >>> table = read_table([[200.0, 1500.0], [210.0, 1510.0]], names=["depth", "speed"], units={"depth": "m"})
        >>> table.names, table.units, table.bounds, table.n_rows, table.n_columns
        (('depth', 'speed'), ('m', None), None, 2, 2)
    """

    values: Float[np.ndarray, "rows columns"]
    columns: Columns

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.columns.names

    @property
    def units(self) -> tuple[str | None, ...]:
        """Units of the columns, None where there is none."""
        return self.columns.units

    @property
    def bounds(self) -> Bounds | None:
        """The box that the rows lie in, or None."""
        return self.columns.bounds

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self.values.shape[0]

    @property
    def n_columns(self) -> int:
        """How many columns there are."""
        return self.values.shape[1]


def read_table(
    rows: Any,
    *,
    names: Iterable[str] | None = None,
    units: Mapping[str, str] | None = None,
    bounds: Any = None,
    like: Columns | None = None,
    min_rows: int = 1,
    what: str = "x",
) -> Table:
    """Return the user's rows as a checked table.

    One-dimensional input is one column. A complex column ``p`` becomes two neighbours, ``p_re`` and ``p_im``, which
    share its unit. Columns without names are called ``x1``, ``x2``, ... after ``what``.

    Args:
        rows: An array, nested lists, a pandas frame or series.
        names: Names of the columns; for a frame with named columns they must be the frame's own.
        units: Unit by column name; columns left out have none.
        bounds: Mapping from name to ``(low, high)`` or a list of pairs, None for an open end; see `parse_bounds`.
        like: Columns of an earlier table that these rows must match, instead of names, units and bounds.
        min_rows: Fewest rows to accept.
        what: What to call the rows in error messages.

    Example:
        >>> table = read_table([[1, 2], [3, 4]], names=["depth", "speed"], units={"depth": "m"})
        >>> table.names, table.units, table.values.shape
        (('depth', 'speed'), ('m', None), (2, 2))
        >>> read_table([1 + 2j, 3 - 1j], what="y").names
        ('y1_re', 'y1_im')
    """
    raw = take_apart(rows, what=what)
    n = len(raw.arrays)
    if not (raw.n_rows and n):
        raise ValueError(f"{what} is empty: it has {raw.n_rows} rows and {n} columns")
    if raw.n_rows < min_rows:
        raise ValueError(f"{what} has {raw.n_rows} rows, too few: at least {min_rows} are needed")
    if like is not None:
        if not (names is None and units is None and bounds is None):
            raise TypeError("give either like, or names, units and bounds; like brings its own")
        names = like.names if raw.names is None and n == len(like) else None
    labels = _labels(raw.names, names, n, what)
    parts = {
        label: real_columns(to_numbers(array, name=label, what=what), label)
        for array, label in zip(raw.arrays, labels, strict=True)
    }
    found = check_names([name for part in parts.values() for name in part], what=what)
    columns = _columns(found, units, parts, bounds, what) if like is None else like
    if like is not None:
        _check_width(found, like.names, what)
        if raw.names is not None:
            _check_same_names(found, like.names, what)
    values = np.column_stack([array for part in parts.values() for array in part.values()])
    _check_finite(values, columns.names, what)
    if columns.bounds is not None:
        columns.bounds.check(values, columns.names, what=what)
    values = np.array(values, dtype=np.float64, order="C")
    values.setflags(write=False)
    return Table(values, columns)


def read_row(row: Any, *, like: Columns, what: str = "y") -> Float[np.ndarray, " columns"]:
    """Return one row, such as a single measurement, checked against known columns.

    Args:
        row: One value per column, in order: a list, an array, or a frame with a single row. Or a mapping or pandas
            series from name to value, in any order.
        like: The columns the row must match.
        what: What to call the row in error messages.

    Example:
        >>> columns = read_table([[0.0, 1.0]], names=["height", "reach"]).columns
        >>> read_row({"reach": 1.5, "height": 0.0}, like=columns)
        array([0. , 1.5])
    """
    if hasattr(row, "to_dict") and getattr(row, "ndim", None) == 1:
        row = row.to_dict() if all(isinstance(name, str) for name in row.index) else row.to_numpy()
    if isinstance(row, Mapping):
        found = check_names(row, what=what)
        _check_width(found, like.names, what)
        _check_same_names(sorted(found), sorted(like.names), what)
        row = [row[name] for name in like.names]
    if not hasattr(row, "iloc"):
        row = np.atleast_2d(np.asarray(row, dtype=object)).tolist()
    table = read_table(row, like=like, what=what)
    if table.n_rows != 1:
        raise ValueError(f"{what} must be a single row, got {table.n_rows} rows")
    return table.values[0]


def check_paired(x: Table, y: Table) -> None:
    """Raise ValueError unless two tables have as many rows, and no column name in common.

    Example:
        >>> x = read_table([[1.0], [2.0]], names=["depth"])
        >>> check_paired(x, read_table([[0.1], [0.2]], names=["pressure"]))
    """
    if x.n_rows != y.n_rows:
        raise ValueError(
            f"x has {x.n_rows} rows but y has {y.n_rows}; row i of one must belong to row i of the other"
        )
    shared = [name for name in x.names if name in y.names]
    if shared:
        raise ValueError(f"x and y share the column names {quoted(shared)}; rename one of them")


def check_units(units: Mapping[str, str], names: Sequence[str], *, what: str = "x") -> dict[str, str]:
    """Return units by name, once they are known to be text and to belong to columns that exist."""
    unknown = [str(name) for name in units if name not in names]
    if unknown:
        raise ValueError(
            f"units for unknown columns {quoted(unknown)}; the columns of {what} are {quoted(names)}"
        )
    for name, unit in units.items():
        if not isinstance(unit, str):
            raise TypeError(f"the unit of {name!r} must be text such as 'm/s', got {unit!r}")
    return dict(units)


def real_columns(array: np.ndarray, label: str) -> dict[str, np.ndarray]:
    """Return a column under its name, or the two columns of its real and imaginary parts."""
    if np.iscomplexobj(array):
        return {f"{label}_re": np.real(array), f"{label}_im": np.imag(array)}
    return {label: array}


def _columns(
    found: tuple[str, ...], units: Mapping[str, str] | None, parts: Mapping[str, Any], bounds: Any, what: str
) -> Columns:
    known = dict(units or {})
    for label, part in parts.items():
        if label in known and label not in part:
            known = {**dict.fromkeys(part, known.pop(label)), **known}
    check_units(known, found, what=what)
    return Columns(found, tuple(known.get(name) for name in found), parse_bounds(bounds, found))


def _labels(own: tuple[str, ...] | None, given: Iterable[str] | None, n: int, what: str) -> tuple[str, ...]:
    if given is None:
        return own or tuple(f"{what}{i + 1}" for i in range(n))
    names = check_names(given, what=what)
    if len(names) != n:
        raise ValueError(f"{what} has {n} column{'s' * (n != 1)} but {len(names)} names: {quoted(names)}")
    if own is not None:
        _check_same_names(own, names, what)
    return names


def _check_width(found: Sequence[str], expected: Sequence[str], what: str) -> None:
    if len(found) != len(expected):
        hint = "; write a single row as [[...]]" if len(found) == 1 else ""
        raise ValueError(
            f"{what} has {len(found)} column{'s' * (len(found) != 1)}, expected {len(expected)}: "
            f"{quoted(expected)}{hint}"
        )


def _check_same_names(found: Sequence[str], expected: Sequence[str], what: str) -> None:
    if tuple(found) == tuple(expected):
        return
    missing = [name for name in expected if name not in found]
    unexpected = [name for name in found if name not in expected]
    if missing or unexpected:
        raise ValueError(
            f"the columns of {what} do not match: missing {quoted(missing) or 'none'}, "
            f"unexpected {quoted(unexpected) or 'none'}"
        )
    place = next(i for i, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
    raise ValueError(
        f"the columns of {what} are in another order than expected: column {place + 1} is {found[place]!r} where "
        f"{expected[place]!r} should be; pass {what}[[{quoted(expected)}]]"
    )


def _check_finite(values: np.ndarray, names: Sequence[str], what: str) -> None:
    n_bad = (~np.isfinite(values)).sum(axis=0)
    if n_bad.any():
        bad = [(name, k) for name, k in zip(names, n_bad, strict=True) if k]
        where = ", ".join(f"column {name!r} in {k} of {len(values)} rows" for name, k in bad[:8])
        more = f" and {len(bad) - 8} more columns" if len(bad) > 8 else ""
        raise ValueError(
            f"{what} contains NaN or infinite values: {where}{more}; drop these rows or fill them in"
        )


class Split(NamedTuple):
    """Row numbers of the two parts of a table, each in rising order."""

    train: Int[np.ndarray, " train"]
    held_out: Int[np.ndarray, " held_out"]


def split_rows(n_rows: int, *, held_out: int, random_state: int | np.random.Generator) -> Split:
    """Return a random split of ``n_rows`` rows, ``held_out`` of them held out.

    Example:
        >>> split_rows(5, held_out=2, random_state=0)
        Split(train=array([0, 1, 3]), held_out=array([2, 4]))
    """
    if not 0 < held_out < n_rows:
        raise ValueError(
            f"held_out must leave rows on both sides: between 1 and {n_rows - 1} of {n_rows}, got {held_out}"
        )
    order = np.random.default_rng(random_state).permutation(n_rows)
    return Split(train=np.sort(order[held_out:]), held_out=np.sort(order[:held_out]))
