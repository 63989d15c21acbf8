"""All modes of one column at one frequency: brackets, Newton on the phase, and Richardson extrapolation.

The status codes are returned rather than raised, so that one bad environment does not stop a batch.
"""

import numpy as np

from isr.ocean.lossy import refine
from isr.ocean.mesh import (
    BOTTOM,
    DENSITY,
    SPEED_BOTTOM,
    SPEED_TOP,
    TOP,
    assemble,
    complex_k2,
    cut_column,
    truncation_depth,
)
from isr.ocean.sturm import System, phases, shapes
from isr.tables.extras import need

njit = need("numba").njit

OK, NO_MODES, COARSE_MESH, NOT_CONVERGED, NEAR_CUT_OFF = range(5)
# Phase error (rad) at which Newton hands over to inverse iteration, which squares what is left.
_PHASE_TOLERANCE = 1e-3
_MAX_ITERATIONS = 80
# A mode is near cut-off within this share of what separates it from the next one, and to first order within so many
# times the loss of the half-space.
_NEAR, _NEAR_TO_FIRST_ORDER = 0.005, 3.0


@njit(cache=True, nogil=True)
def lagrange_weights(nodes, at):
    """Return the weights that extrapolate values at ``nodes`` to ``at``."""
    weights = np.ones(len(nodes))
    for i in range(len(nodes)):
        for j in range(len(nodes)):
            if j != i:
                weights[i] *= (at - nodes[j]) / (nodes[i] - nodes[j])
    return weights


@njit(cache=True, nogil=True)
def _slowest_boundary(intervals):
    best, boundary, density = np.inf, 0, 1.0
    for i in range(len(intervals)):
        if intervals[i, SPEED_TOP] < best:
            best, boundary, density = intervals[i, SPEED_TOP], i, intervals[i, DENSITY]
        if intervals[i, SPEED_BOTTOM] < best:
            best, boundary, density = intervals[i, SPEED_BOTTOM], i + 1, intervals[i, DENSITY]
    return best, boundary, density


@njit(cache=True, nogil=True, error_model="numpy")
def _bracket(x, phase, derivative, first, low, high, guess):
    """Bracket modes ``first``, ``first + 1``, ... in a table of phases and guess them by inverse interpolation.

    ``x`` is the vertical wavenumber at the slowest depth, sqrt(k2_max - lam), in which the phase is almost linear.
    """
    t = 0
    for m in range(len(guess)):
        target = np.pi * (first + m)
        while phase[t] < target:
            t += 1
        x0, y0, s0 = (
            (0.0, 0.0, 0.0) if t == 0 else (x[t - 1], phase[t - 1], -2 * x[t - 1] * derivative[t - 1])
        )
        x1, y1, s1 = x[t], phase[t], -2 * x[t] * derivative[t]
        u = (target - y0) / (y1 - y0)
        value = x0 + u * (x1 - x0)
        if t > 0 and s0 > 0 and s1 > 0:
            rise = y1 - y0
            value = (
                x0 * (1 + 2 * u) * (1 - u) ** 2
                + x1 * u**2 * (3 - 2 * u)
                + rise * (u * (1 - u) ** 2 / s0 - u**2 * (1 - u) / s1)
            )
        if not x0 < value < x1:
            value = 0.5 * (x0 + x1)
        low[m], high[m], guess[m] = x0, x1, value


@njit(cache=True, nogil=True, error_model="numpy")
def _newton(system, low, high, x):
    """Refine ``x`` until every phase is the wanted multiple of pi; bisect where Newton leaves its bracket."""
    n = len(x)
    lam, phase, derivative = np.empty(n), np.empty(n), np.empty(n)
    previous = np.full(n, np.inf)
    for _ in range(_MAX_ITERATIONS):
        for i in range(n):
            lam[i] = system.k2_max - x[i] ** 2
        phases(system, lam, phase, derivative)
        worst = 0.0
        for i in range(n):
            miss = np.pi * (i + 1) - phase[i]
            if miss > 0:
                low[i] = x[i]
            else:
                high[i] = x[i]
            narrow = high[i] - low[i] < 1e-14 * system.k2_max / max(x[i], 1e-7)
            if not narrow:
                worst = max(worst, abs(miss))
            value = x[i] - 0.5 * miss / (x[i] * derivative[i])
            close = abs(miss) < _PHASE_TOLERANCE
            if not low[i] < value < high[i]:
                value = x[i] if close else 0.5 * (low[i] + high[i])
            elif abs(miss) > 0.5 * previous[i] and not close:
                value = 0.5 * (low[i] + high[i])
            previous[i] = abs(miss)
            x[i] = value
        if worst < _PHASE_TOLERANCE:
            return True
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def _first_guess(system, intervals, omega, lam_count):
    """Count the modes above ``lam_count`` and bracket them in a table of phases, about two modes to an entry."""
    total = 0.0
    for i in range(len(intervals)):
        c = 0.5 * (intervals[i, SPEED_TOP] + intervals[i, SPEED_BOTTOM])
        total += (intervals[i, BOTTOM] - intervals[i, TOP]) * np.sqrt(max((omega / c) ** 2 - lam_count, 0.0))
    n_table = 8 * (1 + int(0.5 * total / np.pi) // 8)
    x, lam, phase, derivative = np.empty(n_table), np.empty(n_table), np.empty(n_table), np.empty(n_table)
    for i in range(n_table):
        x[i] = np.sqrt(system.k2_max - lam_count) * (i + 1) / n_table
        lam[i] = system.k2_max - x[i] ** 2
    phases(system, lam, phase, derivative)
    n_modes = int(phase[-1] / np.pi)
    low, high, guess = np.empty(n_modes), np.empty(n_modes), np.empty(n_modes)
    _bracket(x, phase, derivative, 1, low, high, guess)
    return n_modes, low, high, guess


@njit(cache=True, nogil=True, error_model="numpy")
def _next_guess(system, mesh_size, level, values, n_modes):
    """Predict the modes on the next mesh: from the error estimate of the first, then by extrapolation in h^2."""
    weights = lagrange_weights(mesh_size[:level], mesh_size[level])
    low, high, guess = np.zeros(n_modes), np.empty(n_modes), np.empty(n_modes)
    limit = np.sqrt(system.k2_max - system.closing_k2)
    for m in range(n_modes):
        lam = values[0, 0, m] - values[0, 2, m] * (1 - mesh_size[1] / mesh_size[0])
        if level > 1:
            lam = 0.0
            for i in range(level):
                lam += weights[i] * values[i, 0, m]
        high[m] = limit
        guess[m] = min(np.sqrt(max(system.k2_max - lam, 1e-12 * system.k2_max)), limit * (1 - 1e-9))
    return low, high, guess


@njit(cache=True, nogil=True)
def _extrapolate(values, psi, weights, n_modes):
    real, imaginary = np.zeros(n_modes), np.zeros(n_modes)
    shape = np.zeros((n_modes, psi.shape[2]), dtype=np.complex128)
    for level in range(len(weights)):
        for m in range(len(real)):
            real[m] += weights[level] * values[level, 0, m]
            imaginary[m] += weights[level] * values[level, 1, m]
            for s in range(shape.shape[1]):
                shape[m, s] += weights[level] * psi[level, m, s]
    return real, imaginary, shape


@njit(cache=True, nogil=True, error_model="numpy")
def _count_above(system, lam):
    at, turns, slope = np.full(1, lam), np.empty(1), np.empty(1)
    phases(system, at, turns, slope)
    return int(turns[0] / np.pi)


@njit(cache=True, nogil=True, error_model="numpy")
def _correction(real, finest, n_meshes, k2_max):
    """Largest correction of k_r^2 in units of the mode spacing; infinite where modes are out of order."""
    correction = 0.0
    for m in range(len(real)):
        gap = k2_max - real[m] if m == 0 else real[m - 1] - real[m]
        if gap <= 0:
            return np.inf
        if n_meshes > 1:
            correction = max(correction, abs(real[m] - finest[m]) / gap)
    return correction


@njit(cache=True, nogil=True)
def _range_within(real, low, high):
    first, last = 0, len(real)
    while first < last and real[first] > high:
        first += 1
    while last > first and real[last - 1] <= low:
        last -= 1
    return first, last


@njit(cache=True, nogil=True, error_model="numpy")
def _status(real, closing_k2, closing_loss, full_loss):
    """Return `NEAR_CUT_OFF` where the last mode is near the half-space's own wavenumber, else `OK`."""
    limit = _NEAR * (real[-2] - real[-1])
    if not full_loss:
        limit = max(limit, _NEAR_TO_FIRST_ORDER * closing_loss)
    return NEAR_CUT_OFF if real[-1] - closing_k2 < limit else OK


@njit(cache=True, nogil=True, error_model="numpy")
def _solve_level(system, low, high, guess, nodes, below, full_loss, values, psi):
    """Write k_r^2 and psi of the modes of one mesh; returns how many there are, -1 where one did not converge."""
    n_modes = len(guess)
    if not _newton(system, low, high, guess):
        return -1
    rough = np.empty((n_modes, psi.shape[1]))
    shapes(system, system.k2_max - guess**2, nodes, below, rough, values[0], values[1], values[2])
    psi[:n_modes] = rough
    if full_loss and (system.closing_loss > 0.0 or np.max(system.lossy) > 0.0):
        lam = values[0, :n_modes] - 1j * values[1, :n_modes]
        n_modes = refine(system, lam, nodes, below, psi)
        values[0, :n_modes], values[1, :n_modes] = lam.real[:n_modes], -lam.imag[:n_modes]
    return n_modes


@njit(cache=True, nogil=True, error_model="numpy")
def solve_column(
    pieces, halfspace, samples, frequency, slowest_phase, fastest_phase, points_per_wavelength, refinements, nepers,
    full_loss,
):  # fmt: skip
    """Return the modes of one column at one frequency.

    That is a status (`NEAR_CUT_OFF` is a kind of `OK`), real and minus imaginary part of k_r^2, psi (mode, sample),
    k_r^2 on each mesh, and its largest correction by the extrapolation in units of the mode spacing.
    """
    omega = 2 * np.pi * frequency
    empty = np.empty(0), np.empty(0), np.empty((0, len(samples)), dtype=np.complex128), np.empty((0, 0, 0))
    lam_low = max((omega / fastest_phase) ** 2, (omega / halfspace[0]) ** 2)
    end = truncation_depth(pieces, omega, lam_low, max(0.0, np.max(samples)), nepers)
    intervals, cells, closing, boundary, below = cut_column(
        pieces, halfspace, samples, omega, end, points_per_wavelength
    )
    c_min, slow_boundary, density = _slowest_boundary(intervals)
    k2_max = (omega / c_min) ** 2
    closing_k2, closing_loss = complex_k2(closing[0], closing[2], closing[3], closing[4], omega)
    # Modes just past the limit on a coarse mesh may come inside after extrapolation.
    lam_count = max(lam_low - 0.02 * (k2_max - lam_low), closing_k2 + 1e-9 * k2_max)
    if lam_count >= k2_max:
        return NO_MODES, *empty, 0.0
    starts = np.append(0, np.cumsum(cells))
    n_meshes, n_modes = len(refinements), 0
    mesh_size = 1.0 / refinements.astype(np.float64) ** 2
    values, psi = np.empty((n_meshes, 3, 0)), np.empty((n_meshes, 0, len(samples)), dtype=np.complex128)
    for level in range(n_meshes):
        refinement = refinements[level]
        alpha, beta, scale, lossy, curvature, mean_k2 = assemble(intervals, cells, refinement, omega)
        node = min(max(starts[slow_boundary] * refinement, 1), len(alpha) - 2)
        system = System(
            alpha, beta, scale, lossy, curvature, mean_k2, node, density, k2_max, scale[-1] ** 2 / closing[1],
            closing_k2, closing_loss,
        )  # fmt: skip
        if level == 0:
            n_modes, low, high, guess = _first_guess(system, intervals, omega, lam_count)
            values = np.empty((n_meshes, 3, n_modes))
            psi = np.empty((n_meshes, n_modes, len(samples)), dtype=np.complex128)
        else:
            if lam_count <= closing_k2 + 2e-9 * k2_max:  # the last mode may not exist on this mesh
                n_modes = min(n_modes, _count_above(system, lam_count))
            low, high, guess = _next_guess(system, mesh_size, level, values, n_modes)
        if n_modes == 0:
            return NO_MODES, *empty, 0.0
        at = starts[boundary] * refinement
        n_modes = _solve_level(system, low, high, guess, at, below, full_loss, values[level], psi[level])
        if n_modes < 0:
            return NOT_CONVERGED, *empty, 0.0
    real, imaginary, shape = _extrapolate(values, psi, lagrange_weights(mesh_size, 0.0), n_modes)
    correction = _correction(real, values[n_meshes - 1, 0], n_meshes, k2_max)
    if correction > 0.5:
        return COARSE_MESH, *empty, correction
    first, last = _range_within(real, lam_low, (omega / slowest_phase) ** 2 if slowest_phase > 0 else np.inf)
    if last == first:
        return NO_MODES, *empty, correction
    status = OK
    if closing[0] == halfspace[0] and last > 1 and closing_k2 > 0.0:
        status = _status(real[:last], closing_k2, closing_loss, full_loss)
    levels = values[:, :2, first:last].copy()
    return status, real[first:last], imaginary[first:last], shape[first:last], levels, correction
