"""The public names are a contract: a change here is a change for every user."""

import importlib
import importlib.metadata
import inspect
import types

import pytest

import isr

PUBLIC_NAMES = [
    "Condenser",
    "ConditionalISR",
    "EQLRegressor",
    "Expressions",
    "Flow",
    "ISR",
    "Inversion",
    "LawRegressor",
    "MotionRegressor",
    "PRIMITIVES",
    "Primitive",
    "SymbolicFlow",
    "Training",
    "__version__",
    "build_flow",
    "check",
    "extract",
    "load",
    "ocean",
    "problems",
    "register_primitive",
    "register_transformer",
    "save",
]
DATA_NAMES = [
    "Bounds",
    "Columns",
    "Split",
    "Table",
    "check_names",
    "check_paired",
    "parse_bounds",
    "read_row",
    "read_table",
    "split_rows",
    "symbol_names",
]


def test_the_public_names_are_these():
    assert sorted(isr.__all__) == PUBLIC_NAMES


def test_the_names_of_isr_data_are_these():
    assert sorted(importlib.import_module("isr.tables").__all__) == DATA_NAMES


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_every_public_name_is_there_and_listed(name):
    assert getattr(isr, name) is not None
    assert name in dir(isr)


@pytest.mark.parametrize("name", sorted(set(PUBLIC_NAMES) - {"PRIMITIVES", "__version__"}))
def test_every_public_name_is_documented(name):
    assert inspect.getdoc(getattr(isr, name))


@pytest.mark.parametrize("name", ["check", "extract"])
def test_a_function_is_not_hidden_by_the_module_of_the_same_name(name):
    importlib.import_module(f"isr.equations.{name}")
    assert not isinstance(getattr(isr, name), types.ModuleType)
    assert callable(getattr(isr, name))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'isr' has no attribute 'nonsense'"):
        _ = isr.nonsense


def test_the_version_is_that_of_the_installed_package():
    assert isr.__version__ == importlib.metadata.version("symbolicflow")
