"""Source of a law of motion that stands alone: rates, first values, and an integrator that tells its error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import sympy
from sympy.printing import ccode, jscode, pycode

if TYPE_CHECKING:
    from isr.motion.law import MotionLaw

_PRINTERS = {"python": pycode, "c": ccode, "javascript": jscode}
_ALIASES = {"py": "python", "js": "javascript"}


def generate(law: MotionLaw, language: str) -> str:
    """Return source of a law in ``"python"``, ``"c"`` or ``"javascript"``.

    Example:
        >>> from isr.motion.law import Channel, MotionLaw
        >>> from isr.search.formula import Formula, parse
        >>> law = MotionLaw(("k",), (Channel("m", Formula(parse("-k*m", ["m", "k"]))),))
        >>> "dy[0] = -k*m;" in generate(law, "c"), "function solve(" in generate(law, "js")
        (True, True)
    """
    language = _ALIASES.get(language.lower(), language.lower())
    if language not in _PRINTERS:
        raise ValueError(
            f"unknown language {language!r}; a law of motion is written in {', '.join(_PRINTERS)}"
        )
    write = _PRINTERS[language]
    end, tab = ("" if language == "python" else ";"), "    "
    declare = {"python": "", "c": "const double ", "javascript": "const "}[language]
    names = [(c.name, f"y[{i}]") for i, c in enumerate(law.channels)]
    given = [(n, f"x[{j}]") for j, n in enumerate(law.x_names)]
    used = {str(s) for c in law.channels for s in c.rate.expression.free_symbols}
    lines = [f"{tab}{declare}{n} = {v}{end}" for n, v in (*names, *given) if n in used]
    lines += [f"{tab}dy[{i}] = {_written(c.rate.expression, write)}{end}" for i, c in enumerate(law.channels)]
    begun = {str(s) for c in law.channels if c.start for s in c.start.expression.free_symbols}
    first = [f"{tab}{declare}{n} = {v}{end}" for n, v in given if n in begun]
    first += [
        f"{tab}y[{i}] = {_written(c.start.expression, write)}{end}"
        for i, c in enumerate(law.channels)
        if c.start
    ]
    logs = ", ".join("1" if c.log else "0" for c in law.channels)
    table = {
        "ABOUT": [re.sub(r"[^ -~]", "?", line).replace("*/", "* /") for line in law.lines()],
        "RATES": lines, "FIRST": first or [f"{tab}pass" if language == "python" else ""],
    }  # fmt: skip
    text = _TEMPLATES[language].replace("N_CHANNELS", str(len(law.channels))).replace("LOGS", logs)
    for key, rows in table.items():
        sign = {"python": "# ", "c": " * ", "javascript": "// "}[language] if key == "ABOUT" else ""
        text = text.replace(f"@{key}@", "\n".join(sign + row for row in rows))
    return text.replace("STEPS", str(law.steps))


def _written(expression: sympy.Expr, write: object) -> str:
    return write(expression).replace("math.", "")  # type: ignore[operator]


_PYTHON = '''"""A law of motion, by classic Runge-Kutta steps."""
@ABOUT@

from math import *

_logs = [LOGS]


def rates(y, x):
    """Rates of the channels y, or of their logarithms where _logs says so, for parameters x."""
    dy = [0.0] * N_CHANNELS
@RATES@
    return dy


def first(x):
    """Values at the first time, where the law knows them."""
    y = [0.0] * N_CHANNELS
@FIRST@
    return y


def _run(times, start, x, steps):
    def rate(u):
        return rates([exp(v) if is_log else v for v, is_log in zip(u, _logs)], x)

    u = [log(v) if is_log else v for v, is_log in zip(start, _logs)]
    rows = [list(start)]
    for before, after in zip(times, times[1:]):
        h = (after - before) / steps
        for _ in range(steps):
            a = rate(u)
            b = rate([v + h / 2 * k for v, k in zip(u, a)])
            c = rate([v + h / 2 * k for v, k in zip(u, b)])
            d = rate([v + h * k for v, k in zip(u, c)])
            u = [v + h / 6 * (p + 2 * q + 2 * r + s) for v, p, q, r, s in zip(u, a, b, c, d)]
        rows.append([exp(v) if is_log else v for v, is_log in zip(u, _logs)])
    return rows


def solve(times, start, x, steps=STEPS):
    """Rows of channels at times, and by how much the last doubling of the steps moved them."""
    rough, fine = _run(times, start, x, steps), _run(times, start, x, 2 * steps)
    return fine, max(abs(a - b) for one, two in zip(rough, fine) for a, b in zip(one, two))
'''
_C = """/* A law of motion, by classic Runge-Kutta steps.
@ABOUT@
 */
#include <math.h>
#include <string.h>

static const int logs[N_CHANNELS] = {LOGS};

/* Rates of the channels y, or of their logarithms where logs says so, for parameters x. */
void rates(const double *y, const double *x, double *dy) {
    (void)y; (void)x;
@RATES@
}

/* Values at the first time, where the law knows them. */
void first(const double *x, double *y) {
    (void)x; (void)y;
@FIRST@
}

static void rate(const double *u, const double *x, double *du) {
    double y[N_CHANNELS];
    for (int i = 0; i < N_CHANNELS; i++) y[i] = logs[i] ? exp(u[i]) : u[i];
    rates(y, x, du);
}

static void step(double *u, const double *x, double h) {
    double a[N_CHANNELS], b[N_CHANNELS], c[N_CHANNELS], d[N_CHANNELS], v[N_CHANNELS];
    rate(u, x, a);
    for (int i = 0; i < N_CHANNELS; i++) v[i] = u[i] + h / 2 * a[i];
    rate(v, x, b);
    for (int i = 0; i < N_CHANNELS; i++) v[i] = u[i] + h / 2 * b[i];
    rate(v, x, c);
    for (int i = 0; i < N_CHANNELS; i++) v[i] = u[i] + h * c[i];
    rate(v, x, d);
    for (int i = 0; i < N_CHANNELS; i++) u[i] += h / 6 * (a[i] + 2 * b[i] + 2 * c[i] + d[i]);
}

/* Rows of channels at n times, and by how much twice the steps move them; a good number of steps is STEPS. */
double solve(int n, const double *times, const double *start, const double *x, int steps, double *out) {
    double u[2][N_CHANNELS], error = 0.0;
    for (int i = 0; i < N_CHANNELS; i++) {
        u[0][i] = u[1][i] = logs[i] ? log(start[i]) : start[i];
        out[i] = start[i];
    }
    for (int k = 1; k < n; k++) {
        double h = (times[k] - times[k - 1]) / steps;
        for (int j = 0; j < steps; j++) step(u[0], x, h);
        for (int j = 0; j < 2 * steps; j++) step(u[1], x, h / 2);
        for (int i = 0; i < N_CHANNELS; i++) {
            double rough = logs[i] ? exp(u[0][i]) : u[0][i], fine = logs[i] ? exp(u[1][i]) : u[1][i];
            out[k * N_CHANNELS + i] = fine;
            if (!(fabs(fine - rough) <= error)) error = fabs(fine - rough);
        }
    }
    return error;
}
"""
_JAVASCRIPT = """// A law of motion, by classic Runge-Kutta steps.
@ABOUT@
const logs = [LOGS];

// Rates of the channels y, or of their logarithms where logs says so, for parameters x.
function rates(y, x) {
    const dy = new Array(N_CHANNELS);
@RATES@
    return dy;
}

// Values at the first time, where the law knows them.
function first(x) {
    const y = new Array(N_CHANNELS).fill(0);
@FIRST@
    return y;
}

function run(times, start, x, steps) {
    const rate = (u) => rates(u.map((v, i) => (logs[i] ? Math.exp(v) : v)), x);
    let u = start.map((v, i) => (logs[i] ? Math.log(v) : v));
    const rows = [start.slice()];
    for (let k = 1; k < times.length; k++) {
        const h = (times[k] - times[k - 1]) / steps;
        for (let j = 0; j < steps; j++) {
            const a = rate(u);
            const b = rate(u.map((v, i) => v + (h / 2) * a[i]));
            const c = rate(u.map((v, i) => v + (h / 2) * b[i]));
            const d = rate(u.map((v, i) => v + h * c[i]));
            u = u.map((v, i) => v + (h / 6) * (a[i] + 2 * b[i] + 2 * c[i] + d[i]));
        }
        rows.push(u.map((v, i) => (logs[i] ? Math.exp(v) : v)));
    }
    return rows;
}

// Rows of channels at times, and by how much the last doubling of the steps moved them.
function solve(times, start, x, steps = STEPS) {
    const rough = run(times, start, x, steps), fine = run(times, start, x, 2 * steps);
    const error = Math.max(...fine.map((row, k) => Math.max(...row.map((v, i) => Math.abs(v - rough[k][i])))));
    return { values: fine, error };
}
"""
_TEMPLATES = {"python": _PYTHON, "c": _C, "javascript": _JAVASCRIPT}
