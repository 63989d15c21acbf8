"""Rows in: checked tables with names, units and bounds; safe identifiers; splits."""

from isr.tables.bounds import Bounds, parse_bounds
from isr.tables.names import check_names, symbol_names
from isr.tables.tables import Columns, Split, Table, check_paired, read_row, read_table, split_rows

__all__ = [
    "Bounds", "Columns", "Split", "Table", "check_names", "check_paired", "parse_bounds", "read_row", "read_table",
    "split_rows", "symbol_names",
]  # fmt: skip
