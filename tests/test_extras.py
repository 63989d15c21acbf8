"""Optional packages load where they are used, and a missing one is asked for by its extra."""

import sys

import pytest

from isr.tables.extras import EXTRAS, need


@pytest.mark.parametrize(
    ("package", "extra"), [(package, extra) for extra in EXTRAS for package in EXTRAS[extra]]
)
def test_a_missing_package_is_asked_for_by_its_extra(package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"^{package} is not installed; .*symbolicflow\[{extra}\]"):
        need(package)


def test_an_error_inside_a_package_is_not_hidden(monkeypatch, tmp_path):
    (tmp_path / "emcee").mkdir()
    (tmp_path / "emcee" / "__init__.py").write_text("import missing_dependency_of_emcee")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "emcee", raising=False)
    with pytest.raises(ModuleNotFoundError, match="missing_dependency_of_emcee"):
        need("emcee")
