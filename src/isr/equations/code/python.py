"""Python source of a flow: the equations over NumPy columns, with nothing else imported."""

from __future__ import annotations

from isr.equations.code.plan import Plan, plan, wrapped
from isr.equations.code.printers import number
from isr.equations.code.support import Subject, comment, header, pad_nodes, text_list, with_ratios

_CALLS = (
    "forward(x, y=None)             latents of rows of x",
    "inverse(z, y=None)             rows of x of latents",
    "log_det(x, y=None)             log-determinants of forward",
    "log_prob(x, y=None)            log-densities of rows of x, given y, in nats",
    "draw(noise, y=None)            rows of x that rows of standard-normal noise stand for",
    "sample(n, y=None, seed=None)   n rows of x, given y; seed is a number or a numpy Generator",
)

_SNIPPETS = {
    "isr_square": "def isr_square(a):\n    return a*a",
    "isr_cube": "def isr_cube(a):\n    return a*a*a",
    "isr_sigmoid": "def isr_sigmoid(a):\n    return 1/(1 + np.exp(-a))",
    "isr_phi": with_ratios(
        '''\
def isr_phi(u):
    """Standard normal distribution function (W. J. Cody)."""
    u = np.asarray(u, float)
    size = np.minimum(np.abs(u), 40.0)
    s = np.minimum(size, 0.7)**2
    centre = 0.5 + u*(@CDF_CENTRE)
    a = np.clip(size, 0.6, 5.7)
    middle = @CDF_MIDDLE
    t = 1/np.maximum(size, 5.6)**2
    tail = (0.3989422804014327 - t*(@CDF_TAIL))/np.maximum(size, 5.6)
    # exp(-size**2/2) in two factors, the first of them exact, to keep the last digits.
    k = np.floor(16*size)/16
    g = np.where(size <= 5.656854249492381, middle, tail)
    g = g*np.exp(-0.5*k*k)*np.exp(-0.5*(size - k)*(size + k))
    return np.where(size <= 0.67448975, centre, np.where(u < 0, g, 1 - g))''',
        "\\\n        ",
    ),
    "isr_phi_inverse": with_ratios(
        '''\
def isr_phi_inverse(p):
    """Standard normal quantile (M. J. Wichura, AS 241)."""
    p = np.asarray(p, float)
    q = p - 0.5
    r = 0.180625 - np.clip(q, -0.43, 0.43)**2
    centre = q*(@QUANTILE_CENTRE)
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(-np.log(np.where(q < 0, p, 1 - p)))
    r = np.clip(root, 1.6, 5.0) - 1.6
    middle = @QUANTILE_MIDDLE
    r = np.clip(root, 5.0, 30.0) - 5.0
    tail = @QUANTILE_TAIL
    outside = np.where(np.isinf(root), np.inf, np.where(root <= 5.0, middle, tail))
    return np.where(np.abs(q) <= 0.425, centre, np.where(q < 0, -outside, outside))''',
        "\\\n        ",
    ),
}


def write_python(subject: Subject) -> str:
    """Return the Python source of a flow."""
    forward = plan(subject.forward, "python", subject.n_latent, in_one_piece=True)
    inverse = plan(subject.inverse, "python", subject.n_x, in_one_piece=True)
    equations = "\n\n\n".join([direction("forward", forward), direction("inverse", inverse)])
    snippets = [text for name, text in _SNIPPETS.items() if f"{name}(" in equations]
    y = "y is one row, or as many rows as x" if subject.n_y else "there is no y here: leave it out"
    notes = (
        f"Arrays are (n, {subject.n_x}) for x and (n, {subject.n_latent}) for latents, or one row; {y}.",
        "NumPy is all it needs.",
    )
    parts = [
        '"""' + "\n".join(header(subject, _CALLS, notes)) + '\n"""\n\nimport numpy as np\n\n'
        f"N_X, N_Y, N_LATENT = {subject.n_x}, {subject.n_y}, {subject.n_latent}\n"
        f"X_NAMES = {text_list(subject.x_names)}\nY_NAMES = {text_list(subject.y_names)}\n"
        f"NOISE = np.array({list(subject.noise)!r})\nISR_ROWS_AT_ONCE = 2048",
        *snippets,
        equations,
        _RUN,
        _maps(subject),
        _log_prob(subject),
        _sampling(subject),
    ]
    return "\n\n\n".join(parts) + "\n"


def direction(name: str, todo: Plan) -> str:
    """Return one direction as a Python function of columns (or scalars) that gives outputs and log-determinant."""
    (piece,) = todo.run
    body = [f"    {v} = isr_x[{i}]" for v, i in piece.inputs]
    body += [f"    {v} = isr_y[{i}]" for v, i in piece.conditions]
    part = None
    for line in piece.lines:
        if line.part != part:
            part = line.part
            body.append(f"    # {comment(part)}")
        body += [f"    {text}" for text in line.before]
        body.append(f"    {line.target} = {_value(line.value)}")
    body += [f"    {text}" for text in todo.before_outputs]
    outputs = ",\n        ".join(map(_value, todo.outputs))
    body.append(f"    isr_outputs = [\n        {outputs},\n    ]")
    body.append(f"    return isr_outputs, {_value(todo.log_det)}")
    return f"def isr_{name}(isr_x, isr_y):\n" + "\n".join(body)


def _value(text: str) -> str:
    lines = wrapped(text, "        ")
    return lines if "\n" not in lines else f"(\n        {lines}\n    )"


_RUN = """\
def isr_rows(values, width, what):
    rows = np.asarray(values, float)
    if rows.ndim == 1:
        rows = rows[None, :] if rows.shape[0] == width else rows[:, None]
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"{what} must have {width} columns, got an array of shape {np.shape(values)}")
    return rows


def isr_given(y, n, wanted):
    if not wanted:
        return None
    if y is None:
        raise ValueError(f"y is missing: give {N_Y} columns")
    y = isr_rows(y, N_Y, "y")
    if len(y) not in (1, n):
        raise ValueError(f"y must have one row or {n}, got {len(y)}")
    return y


def isr_run(function, rows, y, n_outputs):
    outputs, log_dets = np.empty((len(rows), n_outputs)), np.empty(len(rows))
    for start in range(0, len(rows), ISR_ROWS_AT_ONCE):
        some = slice(start, start + ISR_ROWS_AT_ONCE)
        given = None if y is None else (y if len(y) == 1 else y[some]).T
        with np.errstate(over="ignore", under="ignore"):
            values, log_dets[some] = function(np.ascontiguousarray(rows[some].T), given)
        for i, value in enumerate(values):
            outputs[some, i] = value
    return outputs, log_dets


def isr_like(result, values):
    return result if np.ndim(values) == 2 or len(result) != 1 else result[0]"""


def _maps(subject: Subject) -> str:
    rows = 'isr_rows(x, N_X, "x")'
    if subject.n_padding:
        rows = f"np.pad({rows}, ((0, 0), (0, {subject.n_padding})))"
    return f'''\
def isr_forward_rows(x, y):
    rows = {rows}
    return isr_run(isr_forward, rows, isr_given(y, len(rows), {subject.conditional}), N_LATENT)


def forward(x, y=None):
    """Latents of rows of x."""
    return isr_like(isr_forward_rows(x, y)[0], x)


def log_det(x, y=None):
    """Log-determinants of forward."""
    return isr_like(isr_forward_rows(x, y)[1], x)


def inverse(z, y=None):
    """Rows of x of latents."""
    rows = isr_rows(z, N_LATENT, "the latent")
    return isr_like(isr_run(isr_inverse, rows, isr_given(y, len(rows), {subject.conditional}), N_X)[0], z)'''


def _log_prob(subject: Subject) -> str:
    observed = len(subject.noise)
    shift = f"    z[:, :{observed}] = (z[:, :{observed}] - y)/NOISE\n" if observed else ""
    outside = _outside(subject)
    base = f"""\
{outside}def isr_joint_log_prob(rows, y):
    z, log_dets = isr_run(isr_forward, rows, {"y" if subject.conditional else "None"}, N_LATENT)
{shift}    return log_dets - 0.5*np.sum(z*z, axis=1) + {number(subject.base_constant)}


def log_prob(x, y=None):
    \"\"\"Log-densities of rows of x, given y, in nats.\"\"\"
    rows = isr_rows(x, N_X, "x")
    y = isr_given(y, len(rows), {subject.n_y > 0})
"""
    held = "isr_held(rows, {})" if outside else "{}"
    if not subject.n_padding:
        return base + f"    return isr_like({held.format('isr_joint_log_prob(rows, y)')}, x)"
    nodes, log_weights = pad_nodes()
    return base + f"""\
    # The padding is a variable of its own; Gauss-Hermite quadrature sums it out.
    terms = np.stack([
        isr_joint_log_prob(np.column_stack([rows, np.full(len(rows), node)]), y) + log_weight
        for node, log_weight in zip(ISR_NODES, ISR_LOG_WEIGHTS)
    ])
    return isr_like({held.format("np.logaddexp.reduce(terms)")}, x)


ISR_NODES = {nodes!r}
ISR_LOG_WEIGHTS = {log_weights!r}"""  # fmt: skip


def _outside(subject: Subject) -> str:
    if not subject.outside:
        return ""
    conditions = " | ".join(f"(rows[:, {i}] {sign} {number(end)})" for i, sign, end in subject.outside)
    return f'''\
def isr_held(rows, densities):
    """Densities, none outside the bounds of x."""
    return np.where({conditions}, -np.inf, densities)


'''


def _sampling(subject: Subject) -> str:
    observed = len(subject.noise)
    shift = f"    z[:, :{observed}] = y + NOISE*z[:, :{observed}]\n" if observed else ""
    return f'''\
def draw(noise, y=None):
    """Rows of x that rows of standard-normal noise stand for."""
    z = isr_rows(noise, N_LATENT, "the noise").copy()
    y = isr_given(y, len(z), {subject.n_y > 0})
{shift}    return isr_like(isr_run(isr_inverse, z, {"y" if subject.conditional else "None"}, N_X)[0], noise)


def sample(n, y=None, seed=None):
    """n rows of x, given y."""
    return draw(np.random.default_rng(seed).normal(size=(n, N_LATENT)), y)'''
