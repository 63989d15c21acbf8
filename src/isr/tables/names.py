"""Variable names: what the user reads, and the identifier that stands for it in code and in SymPy.

Any text is a fine *display name*. Its *symbol name* is an ASCII identifier that Python, C, JavaScript and SymPy all
read as a plain variable.
"""

from __future__ import annotations

import builtins
import difflib
import functools
import keyword
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

# C99 promises 63 significant characters for a local name; text we shorten leaves room for a suffix.
_SAFE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}", re.ASCII)
_SHORTENED_TO = 40

_SMALL = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu "
    "nu xi omicron pi rho sigma tau upsilon phi chi psi omega"
)
GREEK_NAMES = dict(
    zip(
        "αβγδεζηθικλμνξοπρστυφχψωΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩς",
        f"{_SMALL} {_SMALL.title()} sigma".split(),
        strict=True,
    )
)
"""What Greek letters are called."""
_ANY_GREEK = f"[{''.join(GREEK_NAMES)}]"
_ANY_LETTER = r"[^\W\d_]"
_BESIDE_GREEK = re.compile(f"(?<={_ANY_GREEK})(?={_ANY_LETTER})|(?<={_ANY_LETTER})(?={_ANY_GREEK})")

# y0, y1, j0, j1 are POSIX functions too, but a local variable may shadow them and y1 is what people write.
_C_WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool complex
imaginary asm fortran typeof nullptr constexpr alignas alignof thread_local static_assert NULL NAN INFINITY HUGE_VAL
EOF FILE errno stdin stdout stderr main malloc calloc realloc free printf fprintf scanf memcpy memset strlen exit abort
rand srand size_t ptrdiff_t int32_t int64_t uint32_t uint64_t acos asin atan atan2 cos sin tan acosh asinh atanh cosh
sinh tanh exp exp2 expm1 frexp ldexp log log10 log1p log2 logb modf scalbn cbrt fabs hypot pow sqrt erf erfc lgamma
tgamma ceil floor nearbyint rint lrint round lround trunc fmod remainder copysign nan nextafter fdim fmax fmin fma
isfinite isinf isnan isnormal signbit
"""
_JAVASCRIPT_WORDS = """
abstract arguments async await boolean break byte case catch char class const continue debugger default delete do double
else enum eval export extends false final finally float for from function get goto if implements import in instanceof
int interface let long native new null of package private protected public return set short static super switch
synchronized this throw throws transient true try typeof undefined var void volatile while with yield Array ArrayBuffer
Boolean BigInt DataView Date Error Float32Array Float64Array Function Infinity Int32Array JSON Map Math NaN Number
Object Promise Proxy Reflect RegExp Set String Symbol Uint32Array Uint8Array WeakMap console constructor document
global globalThis isFinite isNaN module parseFloat parseInt process prototype require self window
"""
_ARRAY_MODULES = "np numpy jnp jax math scipy sympy random"


# Controls, separators of lines, halves of surrogate pairs and marks that turn the direction of writing.
_UNSEEN = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def visible(text: str, keep: str = "") -> str:
    """Return text for a terminal: what would steer it is written out, but for the characters in ``keep``."""
    return _UNSEEN.sub(lambda m: m[0] if m[0] in keep else f"\\u{ord(m[0]):04x}", text)


def check_names(names: Iterable[str], *, what: str = "columns") -> tuple[str, ...]:
    """Return display names of ``what`` as a tuple, once they are known to be non-empty, unique text.

    Example:
        >>> check_names(["depth", "sound speed (m/s)"])
        ('depth', 'sound speed (m/s)')
    """
    if isinstance(names, str):
        raise TypeError(
            f"names of {what} must be a list of text, got the single text {names!r}; write [{names!r}]"
        )
    checked = tuple(names)
    for name in checked:
        if not isinstance(name, str):
            raise TypeError(f"names of {what} must be text, got {name!r} of type {type(name).__name__}")
        if not name.strip():
            raise ValueError(f"names of {what} must not be empty or blank, got {name!r}")
    repeated = [name for name, count in Counter(checked).items() if count > 1]
    if repeated:
        raise ValueError(f"duplicate names of {what}: {quoted(repeated)}; give every variable its own name")
    return tuple(str(name) for name in checked)


def names_given(names: Sequence[str] | None, letter: str, n: int) -> tuple[str, ...]:
    """Return the names given for ``n`` variables, checked; where there are none, the letter with numbers.

    Example:
        >>> names_given(None, "x", 2)
        ('x1', 'x2')
    """
    checked = check_names(names or [f"{letter}{i + 1}" for i in range(n)], what=letter)
    if len(checked) != n:
        raise ValueError(
            f"{letter} has {n} variables, but {len(checked)} names were given: {quoted(checked)}"
        )
    return checked


def symbol_names(names: Iterable[str], *, taken: Iterable[str] = ()) -> tuple[str, ...]:
    """Return one safe, unique identifier for each display name.

    A name that is a safe identifier already stays as it is, whatever its neighbours are called. The result depends
    on nothing but the arguments.

    Args:
        names: Display names, unique.
        taken: Identifiers the caller uses for something else.

    Example:
        >>> symbol_names(["x1", "sin", "θ₁", "sound speed (m/s)", "sound-speed m/s", "2nd"])
        ('x1', 'sin_', 'theta1', 'sound_speed_m_s', 'sound_speed_m_s_2', 'v_2nd')
    """
    display = check_names(names)
    unavailable = set(taken) | _reserved()
    symbols = {name: name for name in display if _SAFE.fullmatch(name) and name not in unavailable}
    used = set(symbols)
    for name in display:
        if name not in symbols:
            symbols[name] = _free(_identifier(name), used, unavailable)
            used.add(symbols[name])
    return tuple(symbols[name] for name in display)


def quoted(names: Sequence[str]) -> str:
    """Return names in quotes, separated by commas, shortened when there are many."""
    shown = ", ".join(repr(name) for name in names[:8])
    return shown if len(names) <= 8 else f"{shown}, ... ({len(names)} in all)"


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return ``" (did you mean …?)"`` where a known word looks like this one, endings of files apart."""
    ending = re.search(r"(\.\w+)?$", word.lower())[0]  # type: ignore[index]
    lowered = {k.lower().removesuffix(ending): k for k in known[:1000]}
    close = difflib.get_close_matches(word.lower().removesuffix(ending), list(lowered), n=1)
    return f" (did you mean {lowered[close[0]]!r}?)" if close else ""


def _identifier(name: str) -> str:
    """An ASCII identifier that looks like ``name``; it may still be reserved or used."""
    # NFKD turns subscripts into digits and parts accents from letters; the accents are dropped.
    text = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    text = _BESIDE_GREEK.sub("_", text)
    text = "".join(GREEK_NAMES.get(c, c) for c in text)
    text = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:_SHORTENED_TO].strip("_")
    if not text:
        return "v"
    return text if text[0].isalpha() else f"v_{text}"


def _free(stem: str, used: set[str], unavailable: set[str]) -> str:
    candidate = f"{stem}_" if stem in unavailable else stem
    number = 2
    while candidate in used or candidate in unavailable:
        candidate = f"{stem}_{number}"
        number += 1
    return candidate


@functools.cache
def _reserved() -> frozenset[str]:
    # Imported here: SymPy is slow to load, and reading a table needs no symbols.
    import sympy

    words = f"{_C_WORDS} {_JAVASCRIPT_WORDS} {_ARRAY_MODULES}".split()
    return frozenset([*words, *keyword.kwlist, *keyword.softkwlist, *dir(builtins), *sympy.__all__])
