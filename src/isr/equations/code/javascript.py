"""JavaScript source of a flow: an ES module without dependencies, quick enough to sample while a slider moves."""

from __future__ import annotations

from isr.equations.code.plan import Piece, Plan, plan, wrapped
from isr.equations.code.printers import number
from isr.equations.code.support import Subject, comment, header, pad_nodes, text_list, with_ratios

_CALLS = (
    "forward(x, y)               the latent of one x, a Float64Array",
    "inverse(z, y)               the x of one latent, a Float64Array",
    "logDet(x, y)                log-determinant of forward at x",
    "logProb(x, y)               log-density of x, given y, in nats",
    "drawInto(out, noise, n, y)  the n rows of x that n rows of standard-normal noise stand for, written into out;",
    "                            a fifth argument, where given, takes the log-density of each row",
    "sampleInto(out, n, y, rng)  n rows of x, written into out; allocates nothing",
    "sample(n, y, seed)          n rows of x, one after the other in a Float64Array",
    "new Rng(seed)               random numbers: .uniform(), .normal(), .fill(array)",
)

_SNIPPETS = {
    "isr_square": "const isr_square = (a) => a*a;",
    "isr_cube": "const isr_cube = (a) => a*a*a;",
    "isr_sigmoid": "const isr_sigmoid = (a) => 1/(1 + Math.exp(-a));",
    "isr_phi": with_ratios(
        """\
// Standard normal distribution function (W. J. Cody).
function isr_phi(u) {
  const a = Math.min(Math.abs(u), 40), s = a*a;
  if (a <= 0.67448975) {
    return 0.5 + u*@CDF_CENTRE;
  }
  let g;
  if (a <= 5.656854249492381) {
    g = @CDF_MIDDLE;
  } else {
    const t = 1/s;
    g = (0.3989422804014327 - t*@CDF_TAIL)/a;
  }
  // exp(-a*a/2) in two factors, the first of them exact, to keep the last digits.
  const k = Math.floor(16*a)/16;
  g *= Math.exp(-0.5*k*k)*Math.exp(-0.5*(a - k)*(a + k));
  return u < 0 ? g : 1 - g;
}""",
        "\n      ",
    ),
}

_RANDOM = with_ratios(
    """\
// Standard normal quantile (M. J. Wichura, AS 241).
function isr_phi_inverse(p) {
  const q = p - 0.5;
  if (Math.abs(q) <= 0.425) {
    const r = 0.180625 - q*q;
    return q*@QUANTILE_CENTRE;
  }
  if (!(p > 0 && p < 1)) return p === 0 ? -Infinity : p === 1 ? Infinity : NaN;
  let r = Math.sqrt(-Math.log(q < 0 ? p : 1 - p)), v;
  if (r <= 5) {
    r -= 1.6;
    v = @QUANTILE_MIDDLE;
  } else {
    r -= 5;
    v = @QUANTILE_TAIL;
  }
  return q < 0 ? -v : v;
}

// Random numbers: xoshiro128** (D. Blackman and S. Vigna), seeded by a mixed counter.
export class Rng {
  constructor(seed = 0) {
    let h = (Math.floor(seed / 4294967296) * 0x85ebca6b) ^ (seed >>> 0);
    const next = () => {
      h = (h + 0x9e3779b9) | 0;
      let v = h ^ (h >>> 16);
      v = Math.imul(v, 0x21f0aaad);
      v ^= v >>> 15;
      v = Math.imul(v, 0x735a2d97);
      return v ^ (v >>> 15);
    };
    this.a = next();
    this.b = next();
    this.c = next();
    this.d = next() | 1;
  }

  bits() {
    let v = Math.imul(this.b, 5);
    v = Math.imul((v << 7) | (v >>> 25), 9);
    const t = this.b << 9;
    this.c ^= this.a;
    this.d ^= this.b;
    this.b ^= this.c;
    this.a ^= this.d;
    this.c ^= t;
    this.d = (this.d << 11) | (this.d >>> 21);
    return v >>> 6;
  }

  // Strictly between 0 and 1, with 52 random bits.
  uniform() {
    const high = this.bits();
    return (high*67108864 + this.bits() + 0.5)*2.220446049250313e-16;
  }

  normal() {
    return isr_phi_inverse(this.uniform());
  }

  fill(array) {
    for (let i = 0; i < array.length; i++) array[i] = this.normal();
    return array;
  }
}""",
    "\n      ",
)

_INDENT = "      "
_ARGUMENTS = "isr_x, isr_y, isr_z, isr_at"


def write_javascript(subject: Subject) -> str:
    """Return the ES module of a flow."""
    forward = plan(subject.forward, "javascript", subject.n_latent)
    inverse = plan(subject.inverse, "javascript", subject.n_x)
    equations = "\n\n".join([*_direction("forward", forward), *_direction("inverse", inverse)])
    snippets = [text for name, text in _SNIPPETS.items() if f"{name}(" in equations]
    notes = (
        f"x, y, z and noise are arrays of numbers.{'' if subject.n_y else ' There is no y here: leave it out.'}",
        "Example: import { sample } from './model.js'; const x = sample(1000, y, 0);",
    )
    parts = [
        "\n".join(["/*", *(f" * {line}".rstrip() for line in header(subject, _CALLS, notes)), " */"]),
        f"export const nX = {subject.n_x};\nexport const nY = {subject.n_y};\n"
        f"export const nLatent = {subject.n_latent};\n"
        f"export const xNames = {text_list(subject.x_names)};\nexport const yNames = {text_list(subject.y_names)};",
        *snippets,
        _RANDOM,
        "// Where the equations leave their log-determinant, so that the loops allocate nothing.\n"
        "const isr_log_det = new Float64Array(1);",
        equations,
        _checks(),
        _maps(subject, forward, inverse),
        _log_prob(subject, forward),
        _sampling(subject, inverse),
    ]
    return "\n\n".join(parts) + "\n"


def _direction(name: str, todo: Plan) -> list[str]:
    functions = [f"const isr_{name}_w = new Float64Array({todo.n_carried});"] if todo.n_carried else []
    if todo.prepare:
        names = [f"isr_{name}_prepare_{i + 1}" for i in range(len(todo.prepare))]
        functions += [_function(n, "isr_y", name, p, todo) for n, p in zip(names, todo.prepare, strict=True)]
        calls = "\n".join(f"  {n}(isr_y);" for n in names)
        functions.append(f"function isr_{name}_prepare(isr_y) {{\n{calls}\n}}")
    if len(todo.run) == 1:
        return [*functions, _function(f"isr_{name}_map", _ARGUMENTS, name, todo.run[0], todo, last=True)]
    names = [f"isr_{name}_part_{i + 1}" for i in range(len(todo.run))]
    for text, piece in zip(names, todo.run, strict=True):
        functions.append(_function(text, _ARGUMENTS, name, piece, todo, last=piece is todo.run[-1]))
    calls = "\n".join(f"  {n}({_ARGUMENTS});" for n in names)
    return [*functions, f"function isr_{name}_map({_ARGUMENTS}) {{\n{calls}\n}}"]


def _function(
    name: str, arguments: str, direction: str, piece: Piece, todo: Plan, *, last: bool = False
) -> str:
    body = [f"  const {v} = isr_x[{i}];" for v, i in piece.inputs]
    body += [f"  const {v} = isr_y[{i}];" for v, i in piece.conditions]
    body += [f"  const {v} = isr_{direction}_w[{i}];" for v, i in piece.carried_in]
    part = None
    for line in piece.lines:
        if line.part != part:
            part = line.part
            body.append(f"  // {comment(part)}")
        body.append(f"  const {line.target} = {wrapped(line.value, _INDENT)};")
    body += [f"  isr_{direction}_w[{i}] = {v};" for v, i in piece.carried_out]
    if last:
        body += [
            f"  isr_z[isr_at + {i}] = {wrapped(value, _INDENT)};" for i, value in enumerate(todo.outputs)
        ]
        body.append(f"  isr_log_det[0] = {wrapped(todo.log_det, _INDENT)};")
    return f"function {name}({arguments}) {{\n" + "\n".join(body) + "\n}"


def _checks() -> str:
    return """\
function isr_check(values, width, what) {
  if (values === undefined || values === null || values.length !== width) {
    const came = values === undefined || values === null ? String(values) : values.length + " entries";
    throw new RangeError(what + " must have " + width + " entries, got " + came);
  }
}"""


def _maps(subject: Subject, forward: Plan, inverse: Plan) -> str:
    check_y = '  isr_check(y, nY, "y");\n' if subject.conditional else ""
    fill = (
        "  for (let i = 0; i < nX; i++) isr_padded[i] = x[i];\n  isr_padded[nX] = 0;\n"
        if subject.n_padding
        else ""
    )
    source = "isr_padded" if subject.n_padding else "x"
    padded = "const isr_padded = new Float64Array(nLatent);\n\n" if subject.n_padding else ""
    return f"""\
{padded}function isr_run_forward(x, y, z) {{
  isr_check(x, nX, "x");
{check_y}{_prepare("forward", forward)}{fill}  isr_forward_map({source}, y, z, 0);
  return z;
}}

export function forward(x, y) {{
  return isr_run_forward(x, y, new Float64Array(nLatent));
}}

export function inverse(z, y) {{
  isr_check(z, nLatent, "the latent");
{check_y}{_prepare("inverse", inverse)}  const x = new Float64Array(nX);
  isr_inverse_map(z, y, x, 0);
  return x;
}}

const isr_latent = new Float64Array(nLatent);

export function logDet(x, y) {{
  isr_run_forward(x, y, isr_latent);
  return isr_log_det[0];
}}"""


def _prepare(name: str, todo: Plan) -> str:
    return f"  isr_{name}_prepare(y);\n" if todo.prepare else ""


def _array(values: list[float]) -> str:
    return "[" + ", ".join(map(number, values)) + "]"


def _log_prob(subject: Subject, forward: Plan) -> str:
    observed = len(subject.noise)
    noise = f"const isr_noise = new Float64Array({_array(list(subject.noise))});\n\n" if observed else ""
    residual = f"i < {observed} ? (z[i] - y[i])/isr_noise[i] : z[i]" if observed else "z[i]"
    check_y = '  isr_check(y, nY, "y");\n' if subject.n_y else ""
    base = f"""\
{noise}// Log-density of the latent.
function isr_base_log_prob(z, y) {{
  let total = {number(subject.base_constant)};
  for (let i = 0; i < nLatent; i++) {{
    const r = {residual};
    total -= 0.5*r*r;
  }}
  return total;
}}
"""
    outside = " || ".join(f"x[{i}] {sign} {number(end)}" for i, sign, end in subject.outside)
    refused = f'  isr_check(x, nX, "x");\n  if ({outside}) return -Infinity;\n' if outside else ""
    if not subject.n_padding:
        return base + f"""
export function logProb(x, y) {{
{check_y}{refused}  isr_run_forward(x, y, isr_latent);
  return isr_log_det[0] + isr_base_log_prob(isr_latent, y);
}}"""  # fmt: skip
    nodes, log_weights = pad_nodes()
    return base + f"""
const isr_nodes = {_array(nodes)};
const isr_log_weights = {_array(log_weights)};

// The padding is a variable of its own; Gauss-Hermite quadrature sums it out.
export function logProb(x, y) {{
  isr_check(x, nX, "x");
{check_y}{refused}{_prepare("forward", forward)}  const terms = isr_nodes.map((node, i) => {{
    isr_padded[0] = x[0];
    isr_padded[1] = node;
    isr_forward_map(isr_padded, y, isr_latent, 0);
    return isr_log_det[0] + isr_base_log_prob(isr_latent, y) + isr_log_weights[i];
  }});
  const largest = Math.max(...terms);
  if (largest === -Infinity) return largest;
  return largest + Math.log(terms.reduce((total, term) => total + Math.exp(term - largest), 0));
}}"""  # fmt: skip


def _sampling(subject: Subject, inverse: Plan) -> str:
    observed = len(subject.noise)
    check_y = '  isr_check(y, nY, "y");\n' if subject.n_y else ""
    shift = (
        f"    for (let i = 0; i < {observed}; i++) isr_latent[i] = y[i] + isr_noise[i]*isr_latent[i];\n"
        if observed
        else ""
    )
    # The padding of a single variable has to be summed out, which only logProb does.
    density = (
        "logProb(out.subarray(row*nX, (row + 1)*nX), y)"
        if subject.n_padding
        else f"{number(subject.base_constant)} - 0.5*squares - isr_log_det[0]"
    )
    return f"""\
export function drawInto(out, noise, n, y, logProbs) {{
{check_y}{_prepare("inverse", inverse)}  for (let row = 0; row < n; row++) {{
    let squares = 0;
    for (let i = 0; i < nLatent; i++) {{
      const v = noise[row*nLatent + i];
      isr_latent[i] = v;
      squares += v*v;
    }}
{shift}    isr_inverse_map(isr_latent, y, out, row*nX);
    if (logProbs !== undefined) logProbs[row] = {density};
  }}
  return out;
}}

export function sampleInto(out, n, y, rng) {{
{check_y}{_prepare("inverse", inverse)}  for (let row = 0; row < n; row++) {{
    for (let i = 0; i < nLatent; i++) isr_latent[i] = rng.normal();
{shift}    isr_inverse_map(isr_latent, y, out, row*nX);
  }}
  return out;
}}

export function sample(n, y, seed = 0) {{
  return sampleInto(new Float64Array(n*nX), n, y, new Rng(seed));
}}"""
