"""Code in other languages from the equations of a flow: C, JavaScript, Python and JAX, each standing alone.

Every source offers forward, inverse, log-determinant, log-density and sampling, given y where there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isr.equations.code.c import write_c
from isr.equations.code.javascript import write_javascript
from isr.equations.code.jax_functions import JaxFunctions, jax_functions
from isr.equations.code.jax_source import write_jax
from isr.equations.code.python import write_python
from isr.equations.code.support import Subject

if TYPE_CHECKING:
    from isr.equations.expressions import Expressions

__all__ = ["LANGUAGES", "JaxFunctions", "Subject", "generate", "to_jax"]

_WRITERS = {"c": write_c, "javascript": write_javascript, "jax": write_jax, "python": write_python}
_ALIASES = {"c99": "c", "js": "javascript", "numpy": "python", "py": "python"}

LANGUAGES = tuple(_WRITERS)
"""The languages code can be written in."""


def generate(equations: Expressions | Subject, language: str) -> str:
    """Return the source of a flow in another language, standing alone.

    Args:
        equations: What `isr.extract` gave.
        language: ``"python"`` (NumPy alone), ``"c"`` (C99), ``"javascript"`` (an ES module) or ``"jax"``.

    Example:
        >>> import jax, isr
        >>> source = generate(isr.extract(isr.build_flow(jax.random.key(0), 2)), "c")
        >>> "double isr_log_prob(const double *x, const double *y)" in source
        True
    """
    name = _ALIASES.get(str(language).lower(), str(language).lower())
    if name not in _WRITERS:
        raise ValueError(f"no code for language {language!r}; known: {', '.join(LANGUAGES)}")
    return _WRITERS[name](_subject(equations))


def to_jax(equations: Expressions | Subject) -> JaxFunctions:
    """Return the equations as JAX functions of one sample, for ``jit``, ``grad`` and ``vmap``.

    Args:
        equations: What `isr.extract` gave.

    Example:
        >>> import jax, isr, jax.numpy as jnp
        >>> functions = to_jax(isr.extract(isr.build_flow(jax.random.key(0), 2)))
        >>> jax.grad(functions.log_prob)(jnp.zeros(2)).shape
        (2,)
    """
    return jax_functions(_subject(equations))


def _subject(equations: Expressions | Subject) -> Subject:
    if isinstance(equations, Subject):
        return equations
    return Subject(
        forward=equations.forward_padded,
        inverse=equations.inverse,
        x_names=equations.x_names,
        y_names=equations.y_names,
        noise=equations.noise,
        n_padding=equations.n_padding,
        units=equations.units,
    )
