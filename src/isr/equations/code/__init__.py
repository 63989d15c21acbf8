"""Code in other languages from equations: C, JavaScript, Python and JAX, each standing alone.

A language is a row of the table in `languages` and a file in ``templates/``. The source of a flow offers forward,
inverse, log-determinant, log-density and sampling, given y where there is one; that of a regressor one function per
output, named after it, with the inputs as arguments.
"""

from isr.equations.code.languages import LANGUAGES
from isr.equations.code.source import generate

__all__ = ["LANGUAGES", "generate"]
