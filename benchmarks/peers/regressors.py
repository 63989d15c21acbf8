"""Symbolic regressors behind one face: rows in, a SymPy expression in ``x0``, ``x1``, ... out.

``seconds`` is the processor time that a search may take, None for a budget of its own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy as sp

Found = tuple[sp.Expr, Callable[[np.ndarray], np.ndarray]]


def law(
    x: np.ndarray, y: np.ndarray, *, family: str, seed: int, quick: bool, seconds: float | None = None,
    library: str | Sequence[str] = "auto",
) -> Found:  # fmt: skip
    """isr's `LawRegressor` with its default library, or the functions that are named."""
    from isr import LawRegressor

    model = LawRegressor(library, max_time=5.0 if quick else seconds, random_state=seed).fit(x, y)
    found = _renamed(model.expressions_[0], [f"x{i + 1}" for i in range(x.shape[1])], x)
    return found, lambda rows: np.asarray(model.predict(rows)).reshape(-1)


def eql(
    x: np.ndarray, y: np.ndarray, *, family: str, seed: int, quick: bool, seconds: float | None = None
) -> Found:
    """isr's `EQLRegressor`; formulas of physics also get quotients and roots."""
    from isr import EQLRegressor, Training

    more = {"reciprocal": 1, "sqrt": 1, "sin": 1} if family != "Kim" else {}
    library = {"constant": 1, "id": 2, "square": 2, "sin2pi": 2, "exp": 1, "sigmoid": 1, "product": 2, **more}
    if family != "Kim":
        library.pop("sin2pi")
    limit = {} if seconds is None else {"max_time": seconds}
    model = EQLRegressor(
        library=library,
        training=Training(
            "quick" if quick else "normal", verbose=False, n_restarts=3 if quick else 9, **limit
        ),
        random_state=seed,
    ).fit(x, y)
    return _renamed(model.expressions_[0], [f"x{i + 1}" for i in range(x.shape[1])], x), model.predict


def gplearn(
    x: np.ndarray, y: np.ndarray, *, family: str, seed: int, quick: bool, seconds: float | None = None
) -> Found:
    """gplearn with the population of its example, a small price on length, and exponential and sigmoid, which it lacks.

    The price is in units of the error, so it goes with the spread of y. Taken is the best program of all generations:
    the best of the last one, which gplearn hands back, may be worse. With ``seconds`` there are as many generations as
    it has time for.
    """
    from gplearn.functions import make_function
    from gplearn.genetic import SymbolicRegressor

    exponential = make_function(function=lambda a: np.exp(np.clip(a, -50, 15)), name="exp", arity=1)
    sigmoid = make_function(
        function=lambda a: 1 / (1 + np.exp(-np.clip(a, -50, 50))), name="sigmoid", arity=1
    )
    spread = float(np.std(y))
    model = SymbolicRegressor(
        population_size=1000 if quick else 5000, generations=1 if seconds else 5 if quick else 20,
        random_state=seed, warm_start=seconds is not None,
        parsimony_coefficient=0.001 * spread, stopping_criteria=1e-9 * spread,
        function_set=("add", "sub", "mul", "div", "sqrt", "log", "sin", "cos", exponential, sigmoid),
    )  # fmt: skip
    ends = time.process_time() + (seconds or 0.0)
    model.fit(x, y)
    while time.process_time() < ends and min(model.run_details_["best_fitness"]) > model.stopping_criteria:
        model.set_params(generations=model.generations + 1).fit(x, y)
    programs = [program for generation in model._programs for program in generation if program is not None]
    best = min(programs, key=lambda program: np.nan_to_num(program.raw_fitness_, nan=np.inf))
    meaning = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b, "sqrt": lambda a: sp.sqrt(sp.Abs(a)), "log": lambda a: sp.log(sp.Abs(a)),
        "sin": sp.sin, "cos": sp.cos, "exp": sp.exp, "sigmoid": lambda a: 1 / (1 + sp.exp(-a)),
    }  # fmt: skip
    named = {f"X{i}": symbol for i, symbol in enumerate(_symbols(x))}
    return _parsed(str(best), meaning | named), best.execute


PROBE = 20_000


def pyoperon(
    x: np.ndarray,
    y: np.ndarray,
    *,
    family: str,
    seed: int,
    quick: bool,
    noise: float = 0.0,
    seconds: float | None = None,
) -> Found:
    """pyoperon with local search of constants and its default budget; the model is chosen from its front by BIC.

    Its default, description length, takes the noise of y as 1 unless told, and then passes over exact models. Its
    budget counts evaluations, not time, so that a busy machine does not end its search; how many go into ``seconds`` a
    short search tells.

    Args:
        x: Inputs.
        y: Targets.
        family: Not used.
        seed: Of the search.
        quick: Whether a tenth of the budget will do.
        noise: Errors of y below which none counts as smaller.
        seconds: Processor time in place of the budget.
    """
    from pyoperon.sklearn import SymbolicRegressor

    x, y = np.array(x), np.array(y)  # its binding takes no read-only arrays

    def searched(n_evaluations: int) -> Any:
        return SymbolicRegressor(
            allowed_symbols="add,sub,mul,div,exp,log,sin,cos,tanh,sqrt,square,constant,variable",
            optimizer_iterations=5, max_length=30, random_state=seed, n_threads=1, objectives=["r2", "length"],
            max_evaluations=n_evaluations, generations=10**6 if seconds else 1000,
        ).fit(x, y)  # fmt: skip

    n_evaluations = 100_000 if quick else 1_000_000
    if seconds is not None:
        began = time.process_time()
        searched(PROBE)
        spent = time.process_time() - began
        n_evaluations = max(PROBE, round(PROBE * (seconds / spent - 1)))
    model = searched(n_evaluations)
    rounding = float(np.finfo(np.float32).eps * np.sqrt(np.mean(y**2)))
    front = [(p["mean_squared_error"], p["tree"].CoefficientsCount, p["tree"]) for p in model.pareto_front_]
    tree = by_bic(front, n=len(y), noise=max(noise, rounding))[2]
    names = [f"x{i}" for i in range(x.shape[1])]
    text = model.get_model_string(tree, precision=12, names=names).replace("^", "**")
    functions = {"square": lambda a: a**2}
    found = _parsed(text, functions | dict(zip(names, _symbols(x), strict=True)))
    found = without_idle_constant(found, x, y, noise=max(noise, rounding))
    return found, lambda rows: model.evaluate_model(tree, np.array(rows))


def without_idle_constant(found: sp.Expr, x: np.ndarray, y: np.ndarray, *, noise: float) -> sp.Expr:
    """Return a formula without its added constant, which pyoperon always writes, where it does not pay by BIC."""
    constant, rest = found.as_coeff_Add()
    if constant == 0 or not rest.free_symbols:
        return found
    values = sp.lambdify(_symbols(x), rest)
    errors = [float(np.mean((values(*x.T) + float(c) - y) ** 2)) for c in (constant, 0.0)]
    front = [(errors[0], 1, found), (errors[1], 0, rest)]
    return by_bic(front, n=len(y), noise=noise)[2] if np.isfinite(errors[1]) else found


def by_bic(front: Sequence[tuple[float, int, Any]], *, n: int, noise: float) -> tuple[float, int, Any]:
    """Return the model of a front with the least Bayesian information criterion, ``n log(error) + k log(n)``.

    pyoperon's own criterion, in single precision, gives a model without error the worst value there is.

    Args:
        front: Mean squared error, number of constants ``k`` and the model itself.
        n: Rows.
        noise: Root mean square error below which none counts as smaller; more than 0.
    """
    return min(
        front, key=lambda point: (n * np.log(max(point[0], noise**2)) + point[1] * np.log(n), point[1])
    )


# What pykan has between inputs and output, the simplest first; a pair is a number of sums and one of products.
KAN_SHAPES = ([], [1], [[2, 2]], [5])
KAN_FUNCTIONS = ["x", "x^2", "x^3", "1/x", "1/x^2", "sqrt", "exp", "log", "sin", "tanh", "gaussian"]
GOOD_FIT, EXACT = 0.999, 1e-6


def pykan(
    x: np.ndarray, y: np.ndarray, *, family: str, seed: int, quick: bool, seconds: float | None = None
) -> Found:
    """pykan by its tutorials, from the simplest shape on, as it advises, until one is exact; else the best of all.

    No further shape is tried once ``seconds`` are over.
    Its penalty has the unit of y squared, so y is scaled to a spread of 1.
    """
    import torch

    torch.set_default_dtype(torch.float64)
    spread = float(np.std(y))
    columns = torch.from_numpy(x), torch.from_numpy(y[:, None] / spread)
    least, best, ends = np.inf, None, time.process_time() + (seconds or np.inf)
    for shape in KAN_SHAPES[2:3] if quick else KAN_SHAPES:
        try:
            model = trained_kan(columns, shape, seed=seed, n_steps=10 if quick else 50)
            formula = model.symbolic_formula()[0][0]
        except (UnboundLocalError, RuntimeError):  # how it ends when a training diverges or all is pruned
            continue
        error = float(torch.sqrt(torch.mean((model(columns[0]) - columns[1]) ** 2)))
        if error < least:
            least, best = error, (model, formula)
        if least < EXACT or time.process_time() > ends:
            break
    if best is None:
        raise RuntimeError("no training of pykan came to an end")
    model, formula = best
    found = spread * _renamed(sp.sympify(formula), [f"x_{i + 1}" for i in range(x.shape[1])], x)
    return found, lambda rows: spread * model(torch.from_numpy(rows)).detach().numpy()[:, 0]


def trained_kan(columns: tuple[Any, Any], shape: list, *, seed: int, n_steps: int) -> Any:
    """Return a network whose edges are functions: sparse training, pruning, a finer grid, functions, their constants.

    An edge gets a simple function where one fits well, which is pykan's own choice, else the one that fits best.
    """
    from kan import KAN

    x, y = columns
    data = {"train_input": x, "train_label": y, "test_input": x, "test_label": y}
    # Products need near-linear edges before them, by its tutorials a linear base and a price on what bends.
    products = {"base_fun": "identity"} if shape == [[2, 2]] else {}
    sparse = {"lamb": 1e-3} | ({"lamb_coef": 1.0} if products else {})
    with tempfile.TemporaryDirectory() as folder:
        model = KAN(
            width=[x.shape[1], *shape, 1],
            grid=3,
            k=3,
            seed=seed,
            auto_save=False,
            ckpt_path=folder,
            **products,
        )
        model.fit(data, opt="LBFGS", steps=n_steps, log=-1, **sparse)
        model = model.prune()
        model.fit(data, opt="LBFGS", steps=n_steps, log=-1)
        model = model.refine(10)
        model.fit(data, opt="LBFGS", steps=n_steps, log=-1)
        model.auto_symbolic(lib=KAN_FUNCTIONS, verbose=0, r2_threshold=GOOD_FIT)
        model.auto_symbolic(lib=KAN_FUNCTIONS, verbose=0, weight_simple=0.0)
        model.fit(data, opt="LBFGS", steps=n_steps, log=-1, update_grid=False)
    return model


def _parsed(text: str, names: dict[str, Any]) -> sp.Expr:
    return sp.sympify(text, locals=names)  # type: ignore[call-overload]


def _renamed(found: sp.Expr, names: list[str], x: np.ndarray) -> sp.Expr:
    """Return an expression in our symbols, by name, so that assumptions on the old ones do not matter."""
    table = dict(zip(names, _symbols(x), strict=True))
    return found.xreplace({symbol: table[symbol.name] for symbol in found.free_symbols})  # type: ignore[union-attr]


def _symbols(x: np.ndarray) -> Any:
    return sp.symbols([f"x{i}" for i in range(x.shape[1])], real=True)


REGRESSORS: dict[str, tuple[Callable[..., Found], tuple[str, ...]]] = {
    "isr LawRegressor": (law, ()),
    "isr LawRegressor, named": (law, ()),
    "isr EQLRegressor": (eql, ()),
    "gplearn": (gplearn, ("gplearn",)),
    "pyoperon": (pyoperon, ("pyoperon",)),
    "pykan": (pykan, ("pykan", "torch")),
}
