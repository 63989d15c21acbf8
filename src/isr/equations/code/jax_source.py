"""JAX source of a flow: functions of one sample, to differentiate, compile and batch."""

from __future__ import annotations

from isr.equations.code.plan import plan
from isr.equations.code.printers import number
from isr.equations.code.python import direction
from isr.equations.code.support import Subject, header, pad_nodes

_CALLS = (
    "forward(x, y=None)         latent of one x",
    "inverse(z, y=None)         x of one latent",
    "log_det(x, y=None)         log-determinant of forward",
    "log_prob(x, y=None)        log-density of x, given y, in nats",
    "draw(noise, y=None)        the x that standard-normal noise stands for",
    "sample(key, n, y=None)     n rows of x, given y",
)


def write_jax(subject: Subject) -> str:
    """Return JAX source of a flow."""
    forward = plan(subject.forward, "jax", subject.n_latent, in_one_piece=True)
    inverse = plan(subject.inverse, "jax", subject.n_x, in_one_piece=True)
    notes = (
        "Every function takes one sample; batch with jax.vmap, compile with jax.jit, differentiate with jax.grad.",
        "For double precision set jax.config.update('jax_enable_x64', True) first.",
    )
    n = len(subject.noise)
    shift = f"    z = z.at[:{n}].set((z[:{n}] - y)/jnp.array(NOISE))\n" if n else ""
    spread = f"    noise = noise.at[:{n}].set(y + jnp.array(NOISE)*noise[:{n}])\n" if n else ""
    pad = "jnp.append(x, 0.0)" if subject.n_padding else "x"
    return f'''\
"""{chr(10).join(header(subject, _CALLS, notes))}
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr as isr_phi
from jax.scipy.special import ndtri as isr_phi_inverse

N_X, N_Y, N_LATENT = {subject.n_x}, {subject.n_y}, {subject.n_latent}
NOISE = {list(subject.noise)!r}


def isr_barrier(values):
    # Keeps XLA from computing a value anew for everything that reads it.
    return jax.lax.optimization_barrier(values)


def isr_square(a):
    return a*a


def isr_cube(a):
    return a*a*a


{direction("forward", forward)}


{direction("inverse", inverse)}


def isr_stack(result, like):
    values, log_det = result
    return jnp.stack([jnp.asarray(value, like.dtype) for value in values]), jnp.asarray(log_det, like.dtype)


def forward(x, y=None):
    """Latent of one x."""
    return isr_stack(isr_forward({pad}, y), x)[0]


def log_det(x, y=None):
    """Log-determinant of forward."""
    return isr_stack(isr_forward({pad}, y), x)[1]


def inverse(z, y=None):
    """x of one latent."""
    return isr_stack(isr_inverse(z, y), z)[0]


def isr_joint_log_prob(padded, y):
    z, log_det = isr_stack(isr_forward(padded, y), padded)
{shift}    return log_det - 0.5*jnp.sum(z*z) + {number(subject.base_constant)}


def log_prob(x, y=None):
    """Log-density of x, given y, in nats."""
{_log_prob(subject)}
    return {_held(subject)}


def draw(noise, y=None):
    """The x that standard-normal noise stands for."""
{spread}    return inverse(noise, y)


def sample(key, n, y=None):
    """n rows of x, given y."""
    return jax.vmap(lambda noise: draw(noise, y))(jax.random.normal(key, (n, N_LATENT)))
'''


def _log_prob(subject: Subject) -> str:
    if not subject.n_padding:
        return "    density = isr_joint_log_prob(x, y)"
    nodes, log_weights = pad_nodes()
    return f"""\
    # The padding is a variable of its own; Gauss-Hermite quadrature sums it out.
    nodes = jnp.array({nodes!r})
    log_weights = jnp.array({log_weights!r})
    terms = jax.vmap(lambda node: isr_joint_log_prob(jnp.append(x, node), y))(nodes)
    density = jax.nn.logsumexp(terms + log_weights)"""


def _held(subject: Subject) -> str:
    conditions = " | ".join(f"(x[{i}] {sign} {number(end)})" for i, sign, end in subject.outside)
    return f"jnp.where({conditions}, -jnp.inf, density)" if conditions else "density"
