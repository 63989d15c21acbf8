"""C99 source of a flow: straight-line equations in double precision, its own random numbers, no dependency."""

from __future__ import annotations

from isr.equations.code.plan import Piece, Plan, plan, wrapped
from isr.equations.code.printers import number
from isr.equations.code.support import Subject, comment, header, pad_nodes, with_ratios

_CALLS = (
    "double isr_forward(const double *x, const double *y, double *z);   x to latent; returns its log-determinant",
    "double isr_inverse(const double *z, const double *y, double *x);   latent to x; returns its log-determinant",
    "double isr_log_det(const double *x, const double *y);              log-determinant of forward at x",
    "double isr_log_prob(const double *x, const double *y);             log-density of x, given y, in nats",
    "void   isr_draw(const double *noise, const double *y, double *x);  the x that standard-normal noise stands for",
    "void   isr_sample(size_t n, const double *y, isr_rng *rng, double *x);   n rows of x, given y",
    "isr_rng isr_seed(uint64_t seed);                                   a random-number generator",
)

_SNIPPETS = {
    "isr_square": "static double isr_square(double a) { return a*a; }",
    "isr_cube": "static double isr_cube(double a) { return a*a*a; }",
    "isr_sigmoid": "static double isr_sigmoid(double a) { return 1.0/(1.0 + exp(-a)); }",
    "isr_max": "static double isr_max(double a, double b) { return (a > b || a != a) ? a : b; }",
    "isr_min": "static double isr_min(double a, double b) { return (a < b || a != a) ? a : b; }",
    "isr_sign": "static double isr_sign(double a) { return a != a ? a : (double)((a > 0.0) - (a < 0.0)); }",
    "isr_phi": with_ratios(
        """\
/* Standard normal distribution function (W. J. Cody). */
static double isr_phi(double u)
{
    const double a = fmin(fabs(u), 40.0), s = a*a;
    double t, g, k;
    if (a <= 0.67448975)
        return 0.5 + u*@CDF_CENTRE;
    if (a <= 5.656854249492381) {
        g = @CDF_MIDDLE;
    } else {
        t = 1.0/s;
        g = (0.3989422804014327 - t*@CDF_TAIL)/a;
    }
    /* exp(-a*a/2) in two factors, the first of them exact, to keep the last digits. */
    k = floor(16.0*a)/16.0;
    g *= exp(-0.5*k*k)*exp(-0.5*(a - k)*(a + k));
    return u != u ? u : u < 0.0 ? g : 1.0 - g;
}""",
        "\n            ",
    ),
}

_RANDOM = with_ratios(
    """\
/* Standard normal quantile (M. J. Wichura, AS 241). */
static double isr_phi_inverse(double p)
{
    const double q = p - 0.5;
    double r, v;
    if (fabs(q) <= 0.425) {
        r = 0.180625 - q*q;
        return q*@QUANTILE_CENTRE;
    }
    if (!(p > 0.0 && p < 1.0))
        return p == 0.0 ? -INFINITY : p == 1.0 ? INFINITY : NAN;
    r = sqrt(-log(q < 0.0 ? p : 1.0 - p));
    if (r <= 5.0) {
        r -= 1.6;
        v = @QUANTILE_MIDDLE;
    } else {
        r -= 5.0;
        v = @QUANTILE_TAIL;
    }
    return q < 0.0 ? -v : v;
}

/* Random numbers: xoshiro256++ (D. Blackman and S. Vigna), seeded by splitmix64. */
typedef struct { uint64_t s[4]; } isr_rng;

isr_rng isr_seed(uint64_t seed)
{
    isr_rng rng;
    for (int i = 0; i < 4; i++) {
        uint64_t v = (seed += 0x9e3779b97f4a7c15u);
        v = (v ^ (v >> 30))*0xbf58476d1ce4e5b9u;
        v = (v ^ (v >> 27))*0x94d049bb133111ebu;
        rng.s[i] = v ^ (v >> 31);
    }
    return rng;
}

static uint64_t isr_rotate(uint64_t v, int k) { return (v << k) | (v >> (64 - k)); }

static double isr_normal(isr_rng *rng)
{
    uint64_t *s = rng->s;
    const uint64_t bits = isr_rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = isr_rotate(s[3], 45);
    return isr_phi_inverse(((double)(bits >> 12) + 0.5)*0x1p-52);
}""",
    "\n            ",
)


def write_c(subject: Subject) -> str:
    """Return the C99 source of a flow."""
    forward = plan(subject.forward, "c", subject.n_latent)
    inverse = plan(subject.inverse, "c", subject.n_x)
    equations = "\n\n".join([*_direction("forward", forward), *_direction("inverse", inverse)])
    snippets = [text for name, text in _SNIPPETS.items() if f"{name}(" in equations]
    y = "y has ISR_N_Y entries" if subject.n_y else "There is no y here: pass NULL"
    notes = (
        f"Arrays are plain doubles: x has ISR_N_X entries, latent and noise ISR_N_LATENT. {y}.",
        "Samples stand one after the other, ISR_N_X entries each. Nothing is allocated; calls share no state.",
        "Compile with: cc -std=c99 -O2 ... -lm",
    )
    parts = [
        "\n".join(["/*", *(f" * {line}".rstrip() for line in header(subject, _CALLS, notes)), " */"]),
        "#include <math.h>\n#include <stddef.h>\n#include <stdint.h>",
        f"#define ISR_N_X {subject.n_x}\n#define ISR_N_Y {subject.n_y}\n#define ISR_N_LATENT {subject.n_latent}",
        *snippets,
        _RANDOM,
        equations,
        _maps(subject, forward, inverse),
        _log_prob(subject),
        _sampling(subject, inverse),
    ]
    return "\n\n".join(parts) + "\n"


def _direction(name: str, todo: Plan) -> list[str]:
    functions = []
    if todo.prepare:
        calls = []
        for i, piece in enumerate(todo.prepare):
            functions.append(_function(f"isr_{name}_prepare_{i + 1}", piece, todo, last=False))
            calls.append(f"    isr_{name}_prepare_{i + 1}({_arguments(piece)});")
        body = "\n".join(calls)
        functions.append(
            f"static void isr_{name}_prepare(const double *isr_y, double *isr_w)\n{{\n{body}\n}}"
        )
    if len(todo.run) == 1:
        return [*functions, _function(f"isr_{name}_map", todo.run[0], todo, last=True)]
    calls = []
    for i, piece in enumerate(todo.run):
        last = piece is todo.run[-1]
        functions.append(_function(f"isr_{name}_part_{i + 1}", piece, todo, last=last))
        call = f"isr_{name}_part_{i + 1}({_arguments(piece, last=last)});"
        calls.append(f"    return {call}" if last else f"    {call}")
    return [
        *functions,
        f"static double isr_{name}_map({_ALL})\n{{\n{_ignored(todo)}" + "\n".join(calls) + "\n}",
    ]


_INDENT = "        "
_ALL = "const double *isr_x, const double *isr_y, double *isr_w, double *isr_z"


def _ignored(todo: Plan) -> str:
    used = " ".join(_arguments(piece, last=piece is todo.run[-1]) for piece in todo.run)
    unused = [name for name in ("isr_x", "isr_y", "isr_w") if name not in used]
    return "".join(f"    (void){name};\n" for name in unused)


def _arguments(piece: Piece, *, last: bool = False) -> str:
    carried = piece.carried_in or piece.carried_out
    read = (("isr_x", piece.inputs), ("isr_y", piece.conditions), ("isr_w", carried), ("isr_z", last))
    return ", ".join(name for name, needed in read if needed)


def _function(name: str, piece: Piece, todo: Plan, *, last: bool) -> str:
    kind = {"isr_x": "const double *", "isr_y": "const double *", "isr_w": "double *", "isr_z": "double *"}
    alone = last and len(todo.run) == 1
    arguments = _ALL if alone else ", ".join(kind[a] + a for a in _arguments(piece, last=last).split(", "))
    body = _ignored(todo).splitlines() if alone else []
    body += [f"    const double {v} = isr_x[{i}];" for v, i in piece.inputs]
    body += [f"    const double {v} = isr_y[{i}];" for v, i in piece.conditions]
    body += [f"    const double {v} = isr_w[{i}];" for v, i in piece.carried_in]
    part = None
    for line in piece.lines:
        if line.part != part:
            part = line.part
            body.append(f"    /* {comment(part)} */")
        body.append(f"    const double {line.target} = {wrapped(line.value, _INDENT)};")
    body += [f"    isr_w[{i}] = {v};" for v, i in piece.carried_out]
    if last:
        body += [f"    isr_z[{i}] = {wrapped(value, _INDENT)};" for i, value in enumerate(todo.outputs)]
        body.append(f"    return {wrapped(todo.log_det, _INDENT)};")
    return f"static {'double' if last else 'void'} {name}({arguments})\n{{\n" + "\n".join(body) + "\n}"


def _maps(subject: Subject, forward: Plan, inverse: Plan) -> str:
    unused = "" if subject.conditional else "    (void)y;\n"
    padded = f"    const double padded[ISR_N_LATENT] = {{{', '.join(f'x[{i}]' for i in range(subject.n_x))}, 0.0}};\n"
    return f"""\
double isr_forward(const double *x, const double *y, double *z)
{{
{_workspace("forward", forward)}{padded if subject.n_padding else ""}{unused}    \
return isr_forward_map({"padded" if subject.n_padding else "x"}, y, w, z);
}}

double isr_inverse(const double *z, const double *y, double *x)
{{
{_workspace("inverse", inverse)}{unused}    return isr_inverse_map(z, y, w, x);
}}

double isr_log_det(const double *x, const double *y)
{{
    double z[ISR_N_LATENT];
    return isr_forward(x, y, z);
}}""" + ("" if not subject.n_padding else f"""

static double isr_forward_padded(const double *padded, const double *y, double *z)
{{
{_workspace("forward", forward)}{unused}    return isr_forward_map(padded, y, w, z);
}}""")  # fmt: skip


def _workspace(name: str, todo: Plan) -> str:
    text = f"    double w[{max(todo.n_carried, 1)}];\n"
    return text + (f"    isr_{name}_prepare(y, w);\n" if todo.prepare else "")


def _array(values: list[float]) -> str:
    return ",\n        ".join(", ".join(map(number, values[i : i + 4])) for i in range(0, len(values), 4))


def _log_prob(subject: Subject) -> str:
    observed = len(subject.noise)
    standardise = f"        if (i < {observed}) r = (z[i] - y[i])/noise[i];\n" if observed else ""
    noise = (
        f"    static const double noise[{observed}] = {{{_array(list(subject.noise))}}};\n"
        if observed
        else ""
    )
    base = f"""\
/* Log-density of the latent. */
static double isr_base_log_prob(const double *z, const double *y)
{{
{noise}    double total = {number(subject.base_constant)};
{"" if observed else "    (void)y;" + chr(10)}    for (int i = 0; i < ISR_N_LATENT; i++) {{
        double r = z[i];
{standardise}        total -= 0.5*r*r;
    }}
    return total;
}}
"""
    outside = " || ".join(f"x[{i}] {sign} {number(end)}" for i, sign, end in subject.outside)
    refused = f"    if ({outside}) return -INFINITY;\n" if outside else ""
    if not subject.n_padding:
        return base + f"""
double isr_log_prob(const double *x, const double *y)
{{
    double z[ISR_N_LATENT];
{refused}    const double log_det = isr_forward(x, y, z);
    return log_det + isr_base_log_prob(z, y);
}}"""  # fmt: skip
    nodes, log_weights = pad_nodes()
    return base + f"""
/* The padding is a variable of its own; Gauss-Hermite quadrature sums it out. */
double isr_log_prob(const double *x, const double *y)
{{
    static const double nodes[{len(nodes)}] = {{
        {_array(nodes)}}};
    static const double log_weights[{len(nodes)}] = {{
        {_array(log_weights)}}};
    double terms[{len(nodes)}], z[ISR_N_LATENT], largest = -INFINITY, total = 0.0;
{refused}    for (int i = 0; i < {len(nodes)}; i++) {{
        const double padded[ISR_N_LATENT] = {{x[0], nodes[i]}};
        const double log_det = isr_forward_padded(padded, y, z);
        terms[i] = log_det + isr_base_log_prob(z, y) + log_weights[i];
        if (terms[i] > largest || terms[i] != terms[i]) largest = terms[i];
    }}
    if (largest == -INFINITY) return largest;
    for (int i = 0; i < {len(nodes)}; i++) total += exp(terms[i] - largest);
    return largest + log(total);
}}"""  # fmt: skip


def _sampling(subject: Subject, inverse: Plan) -> str:
    observed = len(subject.noise)
    noise = (
        f"    static const double scale[{observed}] = {{{_array(list(subject.noise))}}};\n"
        if observed
        else ""
    )
    shift = f"    for (int i = 0; i < {observed}; i++) z[i] = y[i] + scale[i]*z[i];\n" if observed else ""
    unused = "" if subject.n_y else "    (void)y;\n"
    return f"""\
static void isr_draw_prepared(const double *noise, const double *y, double *w, double *x)
{{
{noise}    double z[ISR_N_LATENT];
{unused}    for (int i = 0; i < ISR_N_LATENT; i++) z[i] = noise[i];
{shift}    isr_inverse_map(z, y, w, x);
}}

void isr_draw(const double *noise, const double *y, double *x)
{{
{_workspace("inverse", inverse)}    isr_draw_prepared(noise, y, w, x);
}}

void isr_sample(size_t n, const double *y, isr_rng *rng, double *x)
{{
{_workspace("inverse", inverse)}    for (size_t row = 0; row < n; row++) {{
        double noise[ISR_N_LATENT];
        for (int i = 0; i < ISR_N_LATENT; i++) noise[i] = isr_normal(rng);
        isr_draw_prepared(noise, y, w, x + row*ISR_N_X);
    }}
}}"""
