"""Symbolic regressors behind one face: rows in, a SymPy expression in ``x0``, ``x1``, ... out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

Found = tuple[sp.Expr, Callable[[np.ndarray], np.ndarray]]


def eql(x: np.ndarray, y: np.ndarray, *, family: str, seed: int, quick: bool) -> Found:
    """isr's `EQLRegressor`; formulas of physics also get quotients and roots."""
    from isr import EQLRegressor, Training

    more = {"reciprocal": 1, "sqrt": 1, "sin": 1} if family == "Feynman" else {}
    library = {"constant": 1, "id": 2, "square": 2, "sin2pi": 2, "exp": 1, "sigmoid": 1, "product": 2, **more}
    if more:
        library.pop("sin2pi")
    model = EQLRegressor(
        library=library,
        training=Training("quick" if quick else "normal", verbose=False, n_restarts=3 if quick else 9),
        random_state=seed,
    ).fit(x, y)
    return _renamed(model.expressions_[0], [f"x{i + 1}" for i in range(x.shape[1])], x), model.predict


def gplearn(x: np.ndarray, y: np.ndarray, *, family: str, seed: int, quick: bool) -> Found:
    """gplearn with its default population, a small price on length, and an exponential, which it lacks."""
    from gplearn.functions import make_function
    from gplearn.genetic import SymbolicRegressor

    exponential = make_function(function=lambda a: np.exp(np.clip(a, -50, 15)), name="exp", arity=1)
    model = SymbolicRegressor(
        population_size=1000, generations=5 if quick else 20, parsimony_coefficient=0.001, random_state=seed,
        function_set=("add", "sub", "mul", "div", "sqrt", "log", "sin", "cos", exponential),
    ).fit(x, y)  # fmt: skip
    meaning = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b, "sqrt": lambda a: sp.sqrt(sp.Abs(a)), "log": lambda a: sp.log(sp.Abs(a)),
        "sin": sp.sin, "cos": sp.cos, "exp": sp.exp,
    }  # fmt: skip
    named = {f"X{i}": symbol for i, symbol in enumerate(_symbols(x))}
    return _parsed(str(model._program), meaning | named), model.predict


def pyoperon(
    x: np.ndarray, y: np.ndarray, *, family: str, seed: int, quick: bool, seconds: float | None = None
) -> Found:
    """pyoperon with local search of constants; the model is chosen from its front by BIC.

    Its default, description length, takes the noise of y as 1 unless told, and then passes over exact models.
    """
    from pyoperon.sklearn import SymbolicRegressor

    x, y = np.array(x), np.array(y)  # its binding takes no read-only arrays
    model = SymbolicRegressor(
        allowed_symbols="add,sub,mul,div,exp,log,sin,cos,sqrt,square,constant,variable",
        optimizer_iterations=5, max_length=30, random_state=seed, n_threads=1,
        max_time=max(1, round(seconds or (3 if quick else 30))),
        max_evaluations=100_000 if quick else 1_000_000, objectives=["r2", "length"],
        model_selection_criterion="bayesian_information_criterion",
    ).fit(x, y)  # fmt: skip
    names = [f"x{i}" for i in range(x.shape[1])]
    text = model.get_model_string(model.model_, precision=8, names=names).replace("^", "**")
    functions = {"square": lambda a: a**2}
    return _parsed(text, functions | dict(zip(names, _symbols(x), strict=True))), model.predict


def pykan(x: np.ndarray, y: np.ndarray, *, family: str, seed: int, quick: bool) -> Found:
    """pykan as in its tutorial: sparse training, pruning, symbolic edges, and training of their constants."""
    import torch
    from kan import KAN

    torch.set_default_dtype(torch.float64)
    columns = torch.from_numpy(x), torch.from_numpy(y[:, None])
    data = {
        "train_input": columns[0],
        "train_label": columns[1],
        "test_input": columns[0],
        "test_label": columns[1],
    }
    steps = 10 if quick else 50

    def trained(start: int) -> tuple[Any, Any]:
        with tempfile.TemporaryDirectory() as folder:
            model = KAN(width=[x.shape[1], 3, 1], grid=3, k=3, seed=start, auto_save=False, ckpt_path=folder)
            model.fit(data, opt="LBFGS", steps=steps, lamb=1e-3, log=-1)
            model = model.prune()
            model.fit(data, opt="LBFGS", steps=steps, log=-1)
            model.auto_symbolic(lib=["x", "x^2", "1/x", "sqrt", "exp", "log", "sin"], verbose=0)
            model.fit(data, opt="LBFGS", steps=steps, log=-1)
            return model, model.symbolic_formula()

    for start in (seed, seed + 1, seed + 2):
        try:
            model, formulas = trained(start)
            break
        except UnboundLocalError:  # how it ends when a training has diverged; its users would start again
            if start == seed + 2:
                raise
    return (
        _renamed(sp.sympify(formulas[0][0]), [f"x_{i + 1}" for i in range(x.shape[1])], x),
        lambda rows: model(torch.from_numpy(rows)).detach().numpy()[:, 0],
    )


def _parsed(text: str, names: dict[str, Any]) -> sp.Expr:
    return sp.sympify(text, locals=names)  # type: ignore[call-overload]


def _renamed(found: sp.Expr, names: list[str], x: np.ndarray) -> sp.Expr:
    """Return an expression in our symbols, by name, so that assumptions on the old ones do not matter."""
    table = dict(zip(names, _symbols(x), strict=True))
    return found.xreplace({symbol: table[symbol.name] for symbol in found.free_symbols})  # type: ignore[union-attr]


def _symbols(x: np.ndarray) -> Any:
    return sp.symbols([f"x{i}" for i in range(x.shape[1])], real=True)


REGRESSORS: dict[str, tuple[Callable[..., Found], tuple[str, ...]]] = {
    "isr EQLRegressor": (eql, ()),
    "gplearn": (gplearn, ("gplearn",)),
    "pyoperon": (pyoperon, ("pyoperon",)),
    "pykan": (pykan, ("pykan", "torch")),
}
