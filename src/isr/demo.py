"""The demonstration: the exact law of the Banana density as a model, its equations both ways, samples and checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jinja2 import Environment

from isr.expressions import Expressions, check, extract
from isr.expressions.check import CheckResult
from isr.model.coupling import Coupling
from isr.model.eql import EQL
from isr.model.flow import Flow
from isr.problems.densities import BANANA

N_SAMPLES = 20_000
N_SHOWN = 800


def run(out: Callable[[str], object] = print, folder: str | Path = "demo") -> CheckResult:
    """Print the demonstration, write ``report.html`` into ``folder`` and return the check of the equations.

    Args:
        out: Takes each piece of text.
        folder: Where the page goes; made when it is not there.
    """
    flow = banana_law()
    expressions = extract(flow, ["x0", "x1"])
    out("The Banana: x0 ~ N(0, 2²), x1 ~ N(0.2 (x0² - 4), 1). Its exact law as a model, forward:\n")
    out(_indented(expressions.text("forward", unicode=True)))
    out("\nThe same with nothing named in between:\n")
    composed = expressions.composed()
    for symbol, value in zip(composed.output_symbols, composed.outputs, strict=True):
        out(f"  {symbol} = {value}")
    out("\nand back, from a standard normal z:\n")
    out(_indented(expressions.text("inverse", unicode=True)))

    samples = flow.sample(jax.random.key(0), N_SAMPLES)
    divergence = BANANA.kl_of(flow.log_prob, n=N_SAMPLES)
    nll = -float(np.mean(flow.log_prob(BANANA.sample(N_SAMPLES, random_state=1))))
    out(f"\n{N_SAMPLES:,} samples of the model against the density:\n")
    facts = {
        "mean of x0, x1": f"{_pair(samples.mean(0))}, exact 0, 0",
        "standard deviation": f"{_pair(samples.std(0))}, exact 2, {np.sqrt(1 + 0.2**2 * 2 * 2.0**4):.3f}",
        "mean -log density": f"{nll:.3f} nats, entropy {BANANA.entropy:.3f}",
        "Kullback-Leibler divergence": f"{divergence:.1e} nats",
    }
    for name, fact in facts.items():
        out(f"  {name:<28} {fact}")

    result = check(flow, expressions, n=N_SAMPLES)
    out("\nThe equations against the model:\n")
    out(_indented(str(result)))
    page = _page(expressions, facts, result, samples)
    path = Path(folder) / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    out(f"\nwritten: {path}")
    return result.raise_if_failed()


def banana_law() -> Flow:
    """Return the flow whose equations are ``z1 = x0 / 2`` and ``z2 = x1 - 0.2 x0² + 0.8``.

    Example:
        >>> import numpy as np
        >>> banana_law().forward(np.array([[2.0, 0.0]]))[0]
        array([[1., 0.]])
    """
    # One hidden square unit a network. s1 = -ln 2, t1 = s2 = 0, t2 = 0.8 - 0.8 v1².
    with jax.enable_x64(True):
        first = _one_square(last_weights=(0.0, 0.0), last_biases=(-np.log(2.0), 0.0))
        second = _one_square(last_weights=(0.0, -0.8), last_biases=(0.0, 0.8))
    return Flow(Coupling(first, second, split=1, dim=2, clamp=None, guard=None))


def _one_square(last_weights: tuple[float, float], last_biases: tuple[float, float]) -> EQL:
    """Log-scale and shift, each ``weight * u² + bias``."""
    used = jnp.array([float(w != 0) for w in last_weights]).reshape(2, 1, 1)
    weights = (used, jnp.array(last_weights).reshape(2, 1, 1))
    biases = (jnp.zeros((2, 1)), jnp.array(last_biases).reshape(2, 1))
    return EQL(weights, biases, library=(("constant", 1), ("square", 1)), skip=False)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _pair(values: np.ndarray) -> str:
    return ", ".join(f"{round(float(v), 3) + 0.0:g}" for v in values)


def _page(expressions: Expressions, facts: dict[str, str], result: CheckResult, samples: np.ndarray) -> str:
    template = Environment(autoescape=True).from_string(_TEMPLATE)
    return template.render(
        forward=expressions.mathml("forward"),
        inverse=expressions.mathml("inverse"),
        facts=facts,
        table=result._repr_html_(),
        exact=_circles(BANANA.sample(N_SHOWN, random_state=2)),
        drawn=_circles(samples[:N_SHOWN]),
        n=f"{N_SHOWN:,}",
    )


def _circles(points: np.ndarray) -> list[tuple[str, str]]:
    """Points of the plane on a canvas of 640 by 400, x0 in ±7 and x1 in -4..9."""
    inside = points[(np.abs(points[:, 0]) < 7) & (points[:, 1] > -4) & (points[:, 1] < 9)]
    columns = 40 + (inside[:, 0] + 7) / 14 * 580
    heights = 370 - (inside[:, 1] + 4) / 13 * 350
    return [(f"{a:.1f}", f"{b:.1f}") for a, b in zip(columns, heights, strict=True)]


_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The Banana, as equations that run both ways</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2430; max-width: 46rem; margin: 2.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
math { font-size: 1.15rem; margin: .5rem 0; overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #dfe3ea; }
svg { width: 100%; height: auto; } svg text { font-size: 13px; fill: #5a6372; }
.key { color: #5a6372; font-size: .92rem; }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%; }
</style></head><body>
<h1>The Banana, as equations that run both ways</h1>
<p>x<sub>0</sub> is normal with standard deviation 2; x<sub>1</sub> is normal around
0.2&thinsp;(x<sub>0</sub>² − 4). A model of one coupling block holds the exact law of this density.</p>
<h2>Forward: data to a standard normal latent</h2>{{ forward | safe }}
<h2>Inverse: latent to data</h2>{{ inverse | safe }}
<h2>{{ n }} samples each</h2>
<svg viewBox="0 0 640 400" role="img" aria-label="Samples of the density and of the model cover the same crescent">
<line x1="40" y1="370" x2="620" y2="370" stroke="#aab2c0"/><line x1="40" y1="20" x2="40" y2="370" stroke="#aab2c0"/>
{% for v in (-6, -4, -2, 0, 2, 4, 6) %}
<text x="{{ 40 + (v + 7) / 14 * 580 }}" y="388" text-anchor="middle">{{ v }}</text>
{% endfor %}{% for v in (-4, 0, 4, 8) %}<text x="32" y="{{ 374 - (v + 4) / 13 * 350 }}" text-anchor="end">{{ v }}</text>
{% endfor %}<text x="620" y="362" text-anchor="end">x₀</text><text x="48" y="30">x₁</text>
<g fill="#8b95a7" fill-opacity=".55">{% for x, y in exact %}<circle cx="{{ x }}" cy="{{ y }}" r="2"/>{% endfor %}</g>
<g fill="#c2410c" fill-opacity=".6">{% for x, y in drawn %}<circle cx="{{ x }}" cy="{{ y }}" r="2"/>{% endfor %}</g>
</svg>
<p class="key"><span class="dot" style="background:#8b95a7"></span> drawn from the density
&emsp;<span class="dot" style="background:#c2410c"></span> drawn from the model</p>
<table>{% for name, fact in facts.items() %}<tr><td>{{ name }}</td><td>{{ fact }}</td></tr>{% endfor %}</table>
<h2>The equations against the model</h2>{{ table | safe }}
</body></html>
"""
