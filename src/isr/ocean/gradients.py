"""Derivatives of the pressure by the parameters of an environment: perturbation theory on the mesh.

For each parameter the mesh's coefficients change by known amounts (complex steps through ``mesh.assemble``), and the
mode with them: d(lam) from the Rayleigh quotient of the change, d(psi) by the two marches of ``sturm.py`` with the
change as a source, shifted so that the norm stays one. The discrete problem is differentiated, so the gradient is that
of what `pressure` gives, at the cost of a march per mode and parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from isr.ocean.environment import Environment
from isr.ocean.lossy import newton
from isr.ocean.mesh import assemble, complex_k2, cut_column, truncation_depth
from isr.ocean.modes import (
    DEFAULT_MESH,
    Mesh,
    check_frequencies,
    failure,
    mesh_arguments,
    numbers,
    phase_speed_limits,
)
from isr.ocean.solve import NEAR_CUT_OFF, OK, lagrange_weights, solve_column
from isr.ocean.sturm import System
from isr.tables.extras import need

njit = need("numba").njit

STEP = 1e-3
"""Of a parameter, in its unit, by which the environment's own numbers are differentiated; they are nearly linear."""
_TINY = 1e-30


def pressure_and_gradient(
    parameters: Sequence[float] | np.ndarray,
    build: Callable[..., Environment],
    frequencies: Sequence[float] | np.ndarray,
    *,
    mesh: Mesh = DEFAULT_MESH,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the complex pressure (frequencies, hydrophones) and its derivatives, by parameter on a first axis.

    Args:
        parameters: Where; the profile may not have a knot within `STEP` of a depth that moves.
        build: Makes the environment of them, such as `swellex96`.
        frequencies: In Hz.
        mesh: How finely the depth equation is sampled.

    Example:
        >>> from isr.ocean import swellex96
        >>> p, dp = pressure_and_gradient([216.5, 1572.4], swellex96, [49.0])
        >>> p.shape, dp.shape
        ((1, 21), (2, 1, 21))
    """
    theta = np.asarray(parameters, dtype=float)
    grid = np.asarray(frequencies, dtype=float).reshape(-1)
    check_frequencies(grid)
    environment = build(*theta)
    base = numbers(environment)
    changes = [_change(build, theta, i, base) for i in range(len(theta))]
    stacked = tuple(np.stack([change[k] for change in changes]) for k in range(5))
    out = np.zeros((len(grid), len(environment.array.depths)), dtype=np.complex128)
    slopes = np.zeros((len(theta), *out.shape), dtype=np.complex128)
    for f, frequency in enumerate(grid):
        status = _frequency(
            base, stacked, float(frequency), phase_speed_limits(environment), mesh_arguments(mesh),
            environment.loss == "full", out[f], slopes[:, f],
        )  # fmt: skip
        if status not in (OK, NEAR_CUT_OFF):
            raise failure(status, environment, float(frequency), mesh)
    return out, slopes


def _change(
    build: Callable[..., Environment], theta: np.ndarray, i: int, base: tuple[np.ndarray, ...]
) -> list[np.ndarray]:
    """Derivatives of these numbers by one parameter; one-sided where a side has other knots."""
    step = np.eye(len(theta))[i] * STEP
    sides = [numbers(build(*(theta + sign * step))) for sign in (1, -1)]
    ends = [
        side if all(a.shape == b.shape for a, b in zip(side, base, strict=True)) else base for side in sides
    ]
    width = STEP * sum(end is not base for end in ends)
    if not width:
        raise ValueError(
            f"parameter {i + 1} lies where the profile's knots change; move it by more than {STEP:g}"
        )
    with np.errstate(invalid="ignore"):  # a rigid bottom
        return [np.nan_to_num((a - b) / width) for a, b in zip(*ends, strict=True)]


@njit(cache=True, nogil=True, error_model="numpy")
def _frequency(base, changes, frequency, speeds, mesh, full_loss, out, slopes):
    """Add up pressure and slopes at one frequency; returns the status of the solver."""
    pieces, halfspace, samples, ranges, density = base
    points, refinements, nepers = mesh
    omega, n_parameters = 2 * np.pi * frequency, len(slopes)
    status, real, imaginary, psi, levels, _ = solve_column(
        pieces, halfspace, samples, frequency, speeds[0], speeds[1], points, refinements, nepers, full_loss
    )
    n_modes = len(real)
    if n_modes == 0:
        return status
    lam_low = max((omega / speeds[1]) ** 2, (omega / halfspace[0]) ** 2)
    end = truncation_depth(pieces, omega, lam_low, max(0.0, np.max(samples)), nepers)
    weights = lagrange_weights(1.0 / refinements.astype(np.float64) ** 2, 0.0)
    dlam = np.zeros((n_parameters, n_modes), dtype=np.complex128)
    dpsi = np.zeros((n_parameters, n_modes, len(samples)), dtype=np.complex128)
    for level in range(len(refinements)):
        lam = levels[level, 0] - 1j * levels[level, 1]
        _level(
            base, changes, omega, end, points, refinements[level], full_loss, weights[level], lam, dlam, dpsi
        )
    for m in range(n_modes):
        k = np.sqrt(complex(real[m], -imaginary[m]))
        for h in range(len(ranges)):
            r, s = ranges[h], psi[m, 0]
            wave = 1j * np.sqrt(2 * np.pi) * np.exp(0.25j * np.pi - 1j * k * r) / np.sqrt(k * r) / density[0]
            out[h] += wave * s * psi[m, h + 1]
            for p in range(n_parameters):
                dk, dr = dlam[p, m] / (2 * k), changes[3][p, h]
                bend = -1j * (dk * r + k * dr) - 0.5 * (dk / k + dr / r) - changes[4][p, 0] / density[0]
                moved = dpsi[p, m, 0] * psi[m, h + 1] + s * dpsi[p, m, h + 1] + bend * s * psi[m, h + 1]
                slopes[p, h] += wave * moved
    return status


@njit(cache=True, nogil=True, error_model="numpy")
def _level(base, changes, omega, end, points, refinement, full_loss, weight, lam, dlam, dpsi):
    """Add a mesh's share of the derivatives of k_r^2 and of the modes at the samples."""
    pieces, halfspace, samples = base[0], base[1], base[2]
    intervals, cells, closing, boundary, below = cut_column(pieces, halfspace, samples, omega, end, points)
    system = _system(intervals, cells, closing, refinement, omega)
    starts = np.zeros(len(cells) + 1, dtype=np.int64)
    starts[1:] = np.cumsum(cells)
    nodes = starts[boundary] * refinement
    n = len(system.beta) - 1
    down, up = np.zeros(n + 1, dtype=np.complex128), np.zeros(n + 1, dtype=np.complex128)
    powers_down, powers_up = np.zeros(n + 1), np.zeros(n + 1)
    steps = [
        _moved(base, changes, p, omega, end, points, refinement, intervals, cells, closing, below)
        for p in range(len(dlam))
    ]
    for m in range(len(lam)):
        share = 1.0 if full_loss else 0.0
        at = lam[m] if full_loss else complex(lam[m].real)
        at, norm, gamma, _, best = newton(system, share, at, down, up, powers_down, powers_up)
        unit = 1 / np.sqrt(norm)
        if (unit * down[1]).real < 0:
            unit = -unit
        for p in range(len(dlam)):
            change, dbelow = steps[p]
            moved = _mode_change(system, change, share, at, norm, gamma, best, down, up)
            dlam[p, m] += weight * moved[0]
            for s in range(len(samples)):
                j = nodes[s]
                value = unit * system.scale[j] * down[j]
                slope = unit * (system.scale[j] * up[j] + change.scale[j] * down[j]) - 0.5 * value * moved[1]
                if below[s] > 0.0:
                    fade = np.exp(-gamma * below[s])
                    slope = (slope - value * (moved[2] * below[s] + gamma * dbelow[s])) * fade
                dpsi[p, m, s] += weight * slope


@njit(cache=True, nogil=True, error_model="numpy")
def _system(intervals, cells, closing, refinement, omega):
    alpha, beta, scale, lossy, curvature, mean_k2 = assemble(intervals, cells, refinement, omega)
    k2, loss = complex_k2(closing[0], closing[2], closing[3], closing[4], omega)
    admittance = 0.0 * scale[-1] if np.isinf(closing[1].real) else scale[-1] ** 2 / closing[1]
    return System(alpha, beta, scale, lossy, curvature, mean_k2, 1, 1.0, 0.0, admittance, k2, loss)


@njit(cache=True, nogil=True, error_model="numpy")
def _moved(base, changes, p, omega, end, points, refinement, intervals, cells, closing, below):
    """Return the derivatives of the mesh, as a System, and of the samples' distance under it, by one parameter.

    The end of the mesh moves with the piece in which it lies.
    """
    row = 0
    while row < len(base[0]) - 1 and base[0][row, 1] < end:
        row += 1
    top, bottom = base[0][row, 0], base[0][row, 1]
    tops, bottoms = changes[0][p, row, 0], changes[0][p, row, 1]
    shift = tops + (bottoms - tops) * (end - top) / (bottom - top)
    sides = [
        cut_column(
            base[0] + e * changes[0][p],
            base[1],
            base[2] + e * changes[2][p],
            omega,
            end + e * shift,
            points,
        )
        for e in (STEP, -STEP)
    ]
    slope, dbelow = np.full_like(intervals, np.nan), (sides[0][4] - sides[1][4]) / (2 * STEP)
    if sides[0][0].shape == intervals.shape and sides[1][0].shape == intervals.shape:
        slope = (sides[0][0] - sides[1][0]) / (2 * STEP)
    dclosing = changes[1][p].copy()
    if end < base[0][-1, 1]:  # closed by the fluid there
        dclosing = (sides[0][2] - sides[1][2]) / (2 * STEP)
    mesh = _system(intervals + 1j * _TINY * slope, cells, closing + 1j * _TINY * dclosing, refinement, omega)
    change = System(
        mesh.alpha.imag / _TINY, mesh.beta.imag / _TINY, mesh.scale.imag / _TINY, mesh.lossy.imag / _TINY,
        mesh.curvature.imag, mesh.mean_k2.imag, 1, 1.0, 0.0, mesh.admittance.imag / _TINY,
        mesh.closing_k2.imag / _TINY, mesh.closing_loss.imag / _TINY,
    )  # fmt: skip
    return change, dbelow


@njit(cache=True, nogil=True, error_model="numpy")
def _mode_change(system, change, share, lam, norm, gamma, best, shape, moved):
    """Return the derivatives of k_r^2, of the logarithm of the norm and of gamma; write that of the shape to ``moved``.

    The shape is one at ``best`` before and after.
    """
    n, admittance = len(shape) - 1, system.admittance
    dk2 = change.closing_k2 - 1j * share * change.closing_loss
    source = (change.alpha + 1j * share * change.lossy + lam * change.beta) * shape
    source[n] += (change.admittance * gamma - 0.5 * admittance * dk2 / gamma) * shape[n]
    dlam = -np.sum(shape[1:] * source[1:]) / norm
    source += dlam * system.beta * shape
    source[n] += 0.5 * dlam * admittance / gamma * shape[n]
    diagonal = system.alpha + 1j * share * system.lossy + lam * system.beta
    moved[0], moved[1] = 0.0, 0.0
    for j in range(1, best):
        moved[j + 1] = diagonal[j] * moved[j] - moved[j - 1] + source[j]
    excess = moved[best]
    for j in range(best):
        moved[j] -= excess * shape[j]
    if best < n:
        moved[n], moved[n - 1] = 0.0, source[n]
    for j in range(n - 1, best, -1):
        moved[j - 1] = diagonal[j] * moved[j] - moved[j + 1] + source[j]
    excess = moved[best]
    if best < n:
        for j in range(best + 1, n + 1):
            moved[j] -= excess * shape[j]
    moved[best] = 0.0
    dgamma = 0.5 * (dlam - dk2) / gamma
    tail = 0.5 * admittance / gamma * shape[n] ** 2
    dtail = 0.5 * (change.admittance - admittance * dgamma / gamma) / gamma * shape[n] ** 2
    dtail += admittance / gamma * shape[n] * moved[n]
    dnorm = np.sum((change.beta * shape + 2 * system.beta * moved)[1:] * shape[1:]) + dtail
    if share == 0.0:  # the loss is added to first order
        loss = np.sum(system.lossy[1:] * shape[1:] ** 2) + tail * system.closing_loss
        dloss = np.sum((change.lossy * shape + 2 * system.lossy * moved)[1:] * shape[1:])
        dloss += dtail * system.closing_loss + tail * change.closing_loss
        dlam -= 1j * (dloss - loss * dnorm / norm) / norm
    return dlam, dnorm / norm, dgamma
