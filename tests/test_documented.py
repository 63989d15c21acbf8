"""Every public name says what it is, and is used in an example that runs."""

import doctest
import functools
import importlib
import inspect
import re
from pathlib import Path

import pytest

import isr

DOCS = Path(__file__).parents[1] / "docs"
PACKAGES = ["isr", "isr.tables", "isr.equations", "isr.ocean", "isr.report", "isr.storage"]
PAGES = ["inference", "problems"]  # of the reference, for what is imported from its own module

# What has no example of its own, and why.
WITHOUT_EXAMPLE = {
    "isr.estimators.inverse.ISR.fit_simulator": "trains; the tutorial on simulators runs it",
    "isr.estimators.inverse.ConditionalISR.fit_simulator": "trains; the tutorial on simulators runs it",
    "isr.equations.functions.Phi.fdiff": "SymPy calls it",
    "isr.equations.functions.PhiInverse.fdiff": "SymPy calls it",
    "isr.equations.program.Block": "made by `extract`, whose example shows it",
    "isr.posterior.maximum": "stands behind `Posterior.map`",
    "isr.posterior.outliers.warn_if_outside": "stands behind `Posterior.sample`",
    "isr.posterior.pareto.effective_size": "stands behind `Weights`",
    "isr.posterior.calibration.regions_of": "stands behind `status_`",
    "isr.posterior.simulation.evaluate": "stands behind `simulate`",
    "isr.posterior.simulation.box_around": "stands behind `fit_simulator`",
    "isr.posterior.simulation.joined": "stands behind `fit_simulator`",
    "isr.posterior.posterior.Product": "stands behind `Posterior` of several observations",
    "isr.posterior.posterior.combine": "stands behind `Posterior` of several observations",
    "isr.problems.paper_equations.best_ring_kl": "searches for seconds; the page of results quotes it",
    "isr.problems.paper_equations.RingFit": "made by `best_ring_kl`",
    "isr.ocean.kraken": "needs the KRAKEN programs",
    "isr.ocean.field.sum_modes": "stands behind `pressure`",
    "isr.ocean.modes": "beyond what the package exports, what its other modules share",
}
# The same as without this ending, for JAX programs: one sample, or one a column.
INSIDE_PROGRAMS = ("_one", "_columns")


def references(page):
    return re.findall(r"^::: (\S+)", (DOCS / "reference" / f"{page}.md").read_text("utf-8"), re.MULTILINE)


def module_of(reference):
    """The module that a line of the reference names, and the one name in it that is meant, if any."""
    try:
        return importlib.import_module(reference), None
    except ModuleNotFoundError:
        module, _, name = reference.rpartition(".")
        return importlib.import_module(module), name


def public(module, name=None):
    """The classes and functions that a module of the reference stands for."""
    if name is not None:
        return {name: getattr(module, name)}
    names = getattr(module, "__all__", None) or [
        n
        for n, o in vars(module).items()
        if not n.startswith("_") and getattr(o, "__module__", "") == module.__name__
    ]
    return {n: getattr(module, n) for n in names}


def called(reference):
    """What a user can call: classes, functions and methods, by the place where they are written."""
    found = {}
    for value in public(*module_of(reference)).values():
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        found[f"{value.__module__}.{value.__qualname__}"] = value
        if inspect.isclass(value):
            found |= {f"{value.__module__}.{value.__qualname__}.{n}": m for n, m in methods(value).items()}
    return found


def methods(cls):
    """Public methods and properties that this library wrote for a class."""
    found = {}
    for base in cls.__mro__:
        for name, member in vars(base).items():
            wrapped = getattr(member, "func", getattr(member, "fget", getattr(member, "__func__", member)))
            if (
                base.__module__.startswith("isr.")
                and not name.startswith("_")
                and inspect.isfunction(wrapped)
            ):
                found.setdefault(name, wrapped)
    return found


def is_exempt(value):
    """Errors, warnings and interfaces are never called by a user."""
    if not inspect.isclass(value):
        return False
    return issubclass(value, Exception) or getattr(value, "_is_protocol", False)


def examples(text):
    return [example.source for example in doctest.DocTestParser().get_examples(text or "")]


@functools.cache
def module_examples(module):
    """The running examples of a module, as one text."""
    source = inspect.getsource(importlib.import_module(module))
    return "\n".join(re.findall(r"^ *(?:>>>|\.\.\.) (.*)$", source, re.MULTILINE))


def makers(cls):
    """Functions of the class's module that return it: a record is shown by what makes it."""
    functions = filter(inspect.isfunction, vars(importlib.import_module(cls.__module__)).values())
    return [
        f for f in functions if re.search(rf"\b{cls.__name__}\b", str(inspect.signature(f).return_annotation))
    ]


def has_example(value):
    """Whether a function has an example, or a class, or else a function that makes it."""
    if not inspect.isclass(value):
        return bool(examples(value.__doc__))
    return bool(examples(value.__doc__)) or any(examples(maker.__doc__) for maker in makers(value))


def is_used(cls, method):
    """Whether a method is called in an example of its class, of one that shares it, or of a function beside them."""
    owner = next(base for base in cls.__mro__ if method in vars(base))
    modules = {relative.__module__ for relative in (owner, *descendants(owner))}
    return any(re.search(rf"\.{method}\b", module_examples(module)) for module in modules)


def descendants(cls):
    for child in cls.__subclasses__():
        yield from (child, *descendants(child))


REFERENCES = [
    reference for page in sorted((DOCS / "reference").glob("*.md")) for reference in references(page.stem)
]
SHOWN = {}
for _reference in [*PACKAGES, *(r for page in PAGES for r in references(page))]:
    SHOWN |= called(_reference)
CLASSES = {path: value for path, value in SHOWN.items() if inspect.isclass(value)}


@pytest.mark.parametrize("reference", REFERENCES)
def test_every_name_of_the_reference_is_documented(reference):
    missing = [path for path, value in called(reference).items() if not inspect.getdoc(value)]
    assert missing == []


def test_every_public_name_has_an_example():
    assert [path for path in without_example() if not is_excepted(path)] == []


def without_example():
    for path, value in SHOWN.items():
        owner = CLASSES.get(path.rpartition(".")[0])
        if is_exempt(owner or value):
            continue
        if not (has_example(value) or (owner is not None and is_used(owner, path.rpartition(".")[2]))):
            yield path


def is_excepted(path):
    return path.endswith(INSIDE_PROGRAMS) or any(
        f"{path}.".startswith(f"{name}.") for name in WITHOUT_EXAMPLE
    )


def test_every_exception_is_needed():
    missing = list(without_example())
    assert [
        name for name in WITHOUT_EXAMPLE if not any(f"{path}.".startswith(f"{name}.") for path in missing)
    ] == []


def test_a_name_without_example_would_be_noticed():
    def bare() -> None:
        """Say nothing of how it is used."""

    assert not has_example(bare)
    assert has_example(isr.check)
