"""Modes with their loss in full: the complex wavenumber and shape, by Newton's method from the real mode.

The matrix is that of ``mesh.py`` with the imaginary part of the squared wavenumber in its diagonal, and the half-space
has gamma = sqrt(lam - k_b^2) with its complex k_b. One step is the Rayleigh quotient of the two-sided march, as in
``sturm.shapes``, with products that are not conjugated. First order, which the real modes have, is off by the square of
the loss over what separates modes from each other and from cut-off: percents of the field where a bottom is lossy and
hardly faster than the water.
"""

import numpy as np

from isr.tables.extras import need

njit = need("numba").njit

_HUGE = 1e100
_MAX_ITERATIONS = 12
# Steps, over lam, after which a mode is as good as it gets, and good enough; a step squares what is left.
_TOLERANCE, _ENOUGH = 1e-13, 1e-9
_SHARES = 10


@njit(cache=True, nogil=True, error_model="numpy")
def half_space_decay(lam, closing_k2, closing_loss):
    """Return gamma of the closing half-space: where modes decay with depth, and beyond cut-off where they leak.

    This is Pekeris' cut, as in KRAKENC.
    """
    z = lam - closing_k2 + 1j * closing_loss
    if abs(z) < 1e-13 * abs(lam):
        z = complex(1e-13 * abs(lam))
    return np.sqrt(z) if z.real > 0 else 1j * np.sqrt(-z)


@njit(cache=True, nogil=True, error_model="numpy")
def _march(diagonal, beta, lam, first, direction, start, values, powers):
    """March from ``first`` (value 1) over all further nodes; ``start`` is the value before it.

    A value that grows too large is divided by _HUGE from there on; ``powers`` says how often, node by node.
    """
    before, now, power = start, 1.0 + 0j, 0.0
    values[first], powers[first] = now, power
    j = first
    while 0 < j + direction <= len(beta) - 1 or j + direction == 0:
        following = (diagonal[j] + beta[j] * lam) * now - before
        if abs(following) > _HUGE:
            following, now, power = following / _HUGE, now / _HUGE, power + 1.0
        before, now = now, following
        j += direction
        values[j], powers[j] = now, power


@njit(cache=True, nogil=True, error_model="numpy")
def _best_node(down, up, powers_down, powers_up, scale):
    """Return the node where |psi^2| is largest."""
    best, peak, n = 1, -np.inf, len(down) - 1
    scaled = powers_down[n] + powers_up[0] > 0.0
    for j in range(1, n + 1):
        size = abs(down[j] * up[j]) * scale[j] ** 2
        if scaled:
            size = np.log(size + 1e-300) + np.log(_HUGE) * (powers_down[j] + powers_up[j])
        if size > peak:
            best, peak = j, size
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _shape(down, up, powers_down, powers_up, best):
    """Overwrite ``down`` by the shape that is one at ``best``: the downward march above it, the upward one below."""
    to_down, to_up, base_down, base_up = 1 / down[best], 1 / up[best], powers_down[best], powers_up[best]
    for j in range(best):
        factor = 1.0 if powers_down[j] == base_down else _HUGE ** (powers_down[j] - base_down)
        down[j] *= to_down * factor
    for j in range(best, len(down)):
        factor = 1.0 if powers_up[j] == base_up else _HUGE ** (powers_up[j] - base_up)
        down[j] = up[j] * to_up * factor


@njit(cache=True, nogil=True, error_model="numpy")
def newton(system, share, lam, down, up, powers_down, powers_up):
    """Return the mode near ``lam`` with a ``share`` of the loss, its norm, its gamma, and whether it converged.

    Its shape is left in ``down``; the last result is the node where that is one.
    """
    beta, n, step = system.beta, len(system.beta) - 1, np.inf
    diagonal = system.alpha + 1j * share * system.lossy
    norm, gamma, best = 1.0 + 0j, 0j, 1
    for _ in range(_MAX_ITERATIONS):
        gamma = half_space_decay(lam, system.closing_k2, share * system.closing_loss)
        last = system.admittance * gamma
        down[0], powers_down[0] = 0.0, 0.0
        _march(diagonal, beta, lam, 1, 1, 0j, down, powers_down)
        _march(diagonal, beta, lam, n, -1, -last, up, powers_up)
        best = _best_node(down, up, powers_down, powers_up, system.scale)
        _shape(down, up, powers_down, powers_up, best)
        norm = np.sum(beta[1:] * down[1:] ** 2) + 0.5 * system.admittance / gamma * down[n] ** 2
        residual = diagonal[best] + beta[best] * lam - down[best - 1]
        residual += last if best == n else -down[best + 1]
        lam -= residual / norm
        before, step = step, abs(residual / norm)
        if step <= _TOLERANCE * abs(lam) or (step < _ENOUGH * abs(lam) and step > 0.5 * before):
            break
    return lam, norm, gamma, step < _ENOUGH * abs(lam), best


@njit(cache=True, nogil=True, error_model="numpy")
def refine(system, lam, samples, below, out):
    """Refine the complex k_r^2 in ``lam`` in place and write the normalised psi at the sample nodes to ``out``.

    A mode that leaves its place between its neighbours is followed from the lossless one, with more loss step by step.
    Returns how many modes from the first on are found.
    """
    n, n_modes = len(system.beta) - 1, len(lam)
    down, up = np.zeros(n + 1, dtype=np.complex128), np.zeros(n + 1, dtype=np.complex128)
    powers_down, powers_up, real = np.zeros(n + 1), np.zeros(n + 1), lam.real.copy()
    for m in range(n_modes):
        gap = min(
            real[m - 1] - real[m] if m else np.inf, real[m] - real[m + 1] if m + 1 < n_modes else np.inf
        )
        found, norm, gamma, good, _ = newton(system, 1.0, lam[m], down, up, powers_down, powers_up)
        if not good or abs(found - lam[m]) > 0.3 * gap:
            found = real[m] + 0j
            for i in range(_SHARES):
                found, norm, gamma, good, _ = newton(
                    system, (i + 1) / _SHARES, found, down, up, powers_down, powers_up
                )
        if not good:
            return m
        lam[m] = found
        unit = 1 / np.sqrt(norm)
        if (unit * down[1]).real < 0:  # psi rises from the surface
            unit = -unit
        for s in range(len(samples)):
            out[m, s] = unit * system.scale[samples[s]] * down[samples[s]]
            if below[s] > 0.0:
                out[m, s] *= np.exp(-gamma * below[s])
    return n_modes
