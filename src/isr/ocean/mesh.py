"""The finite-difference mesh of a layered column, as a symmetric tridiagonal matrix with unit off-diagonals.

The depth equation (psi'/rho)' + (K - lam) psi / rho = 0 with K = (omega/c)^2 and lam = k_r^2 becomes, in weak form
with lumped masses, A(lam) psi = 0: the off-diagonals are -1/(rho h), the diagonal is the sum of its two neighbours
less the mass times K - lam. This is the usual second-order scheme, with the continuity of pressure and of
psi'/rho at interfaces built in. Scaling psi_j = g_j phi_j with g_j g_{j+1} = rho h makes every off-diagonal -1:

    phi_{j+1} = (alpha_j + beta_j lam) phi_j - phi_{j-1},

and beta is then also the mass: the integral of psi^2/rho is the sum of beta_j phi_j^2.

Every knot of the profile, every interface and every source or receiver depth is a node. So the error of the scheme
is a clean series in h^2, to be extrapolated away, and no mode needs interpolation.
"""

import numpy as np

from isr.tables.extras import need

njit = need("numba").njit

# Columns of a piece: one depth interval with linear sound speed.
TOP, BOTTOM, SPEED_TOP, SPEED_BOTTOM, DENSITY, LOSS, LOSS_PER_HZ, LOSS_PER_CYCLE = range(8)
# Depths closer than this (m) share a node.
DEPTH_TOLERANCE = 1e-7


@njit(cache=True, nogil=True, error_model="numpy")
def complex_k2(speed, loss, loss_per_hz, loss_per_cycle, omega):
    """Return the real part of the squared wavenumber and minus its imaginary part.

    The medium has the complex speed c (1 + i q) with q = attenuation c / omega, as KRAKEN defines it; the real part
    therefore drops by a factor of about 1 - 3 q^2, 1e-4 in a sediment, which shows in the field at 3 km.
    """
    if np.isinf(speed):  # a rigid bottom
        return 0.0, 0.0
    frequency = omega / (2 * np.pi)
    q = (loss + loss_per_hz * frequency) * speed / omega + loss_per_cycle / (2 * np.pi)
    k2 = (omega / (speed * (1 + q * q))) ** 2
    return k2 * (1 - q * q), k2 * 2 * q


@njit(cache=True, nogil=True)
def truncation_depth(pieces, omega, lam, deepest, nepers):
    """Return the depth below which waves with ``k_r^2 >= lam`` have decayed by ``nepers``.

    Only the part under the last propagating depth and under the ``deepest`` sample is left out; the fluid there
    is closed by a half-space of the local speed, which changes an eigenvalue by about exp(-2 nepers).
    """
    start = deepest
    for p in range(len(pieces) - 1, -1, -1):
        top, bottom = pieces[p, TOP], pieces[p, BOTTOM]
        c_top, c_bottom = pieces[p, SPEED_TOP], pieces[p, SPEED_BOTTOM]
        if (omega / c_bottom) ** 2 >= lam:
            start = max(start, bottom)
            break
        if (omega / c_top) ** 2 >= lam:
            turning = top + (omega / np.sqrt(lam) - c_top) / (c_bottom - c_top) * (bottom - top)
            start = max(start, turning)
            break
    total = 0.0
    for p in range(len(pieces)):
        top, bottom = max(pieces[p, TOP], start), pieces[p, BOTTOM]
        if bottom <= top:
            continue
        slope = (pieces[p, SPEED_BOTTOM] - pieces[p, SPEED_TOP]) / (bottom - pieces[p, TOP])
        steps = 64
        dz = (bottom - top) / steps
        for i in range(steps):
            c = pieces[p, SPEED_TOP] + slope * (top + (i + 0.5) * dz - pieces[p, TOP])
            total += dz * np.sqrt(max(lam - (omega / c) ** 2, 0.0))
            if total >= nepers:
                return top + (i + 1) * dz
    return pieces[-1, BOTTOM]


@njit(cache=True, nogil=True)
def _sorted_order(values):
    # Insertion sort: np.argsort alone takes Numba ten seconds to compile.
    order = np.empty(len(values), dtype=np.int64)
    for i in range(len(values)):
        j = i
        while j > 0 and values[order[j - 1]] > values[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    return order


@njit(cache=True, nogil=True)
def cut_column(pieces, halfspace, samples, omega, end, points_per_wavelength):
    """Cut the column at knots, interfaces and sample depths, and at ``end``.

    Returns:
        The intervals (same columns as pieces), the number of cells of each on the coarsest mesh, the half-space
        that closes them, and for every sample its interval boundary (0 is the surface) and the distance by
        which it lies under the last node.
    """
    n_samples = len(samples)
    order = _sorted_order(samples)
    intervals = np.empty((len(pieces) + n_samples, 8))
    cells = np.empty(len(pieces) + n_samples, dtype=np.int64)
    closing = halfspace.copy()
    count = 0
    for p in range(len(pieces)):
        top, bottom = pieces[p, TOP], pieces[p, BOTTOM]
        if top >= end - DEPTH_TOLERANCE and count > 0:
            break
        slope = (pieces[p, SPEED_BOTTOM] - pieces[p, SPEED_TOP]) / (bottom - top)
        stop = min(bottom, end)
        position = top
        for i in range(n_samples + 1):
            cut = stop if i == n_samples else samples[order[i]]
            if i < n_samples and (cut <= position + DEPTH_TOLERANCE or cut >= stop - DEPTH_TOLERANCE):
                continue
            row = intervals[count]
            for column in range(8):
                row[column] = pieces[p, column]
            row[TOP], row[BOTTOM] = position, cut
            row[SPEED_TOP] = pieces[p, SPEED_TOP] + slope * (position - top)
            row[SPEED_BOTTOM] = pieces[p, SPEED_TOP] + slope * (cut - top)
            shortest = 2 * np.pi * min(row[SPEED_TOP], row[SPEED_BOTTOM]) / omega
            # An even number, so that the scale g is the same at all boundaries and cannot drift.
            cells[count] = 2 * max(
                1, int(np.ceil(0.5 * (cut - position) * points_per_wavelength / shortest - 1e-9))
            )
            count += 1
            position = cut
    if end < pieces[-1, BOTTOM]:
        last = intervals[count - 1]
        closing[0], closing[1] = last[SPEED_BOTTOM], last[DENSITY]
        for column in range(3):
            closing[2 + column] = last[LOSS + column]
    if count == 1:
        cells[0] = max(cells[0], 4)  # the recurrences need a few interior nodes
    boundary = np.zeros(n_samples, dtype=np.int64)
    below = np.zeros(n_samples)
    for s in range(n_samples):
        if samples[s] > DEPTH_TOLERANCE:
            b = 0
            while b < count - 1 and intervals[b, BOTTOM] < samples[s] - DEPTH_TOLERANCE:
                b += 1
            boundary[s] = b + 1
            below[s] = max(0.0, samples[s] - intervals[b, BOTTOM])
            if below[s] <= DEPTH_TOLERANCE:
                below[s] = 0.0
    return intervals[:count], cells[:count], closing, boundary, below


@njit(cache=True, nogil=True, error_model="numpy")
def assemble(intervals, cells, refinement, omega):
    """Return the node arrays of the mesh with ``refinement`` times the coarse cells.

    Complex intervals give derivatives: the imaginary part of the result of a very small one.

    Returns:
        ``alpha``, ``beta``, ``scale`` (g above), ``lossy`` (weight of the imaginary part of k_r^2), ``curvature`` and
        ``mean_k2`` (with which curvature (mean_k2 - lam)^2 estimates the discretisation error).
    """
    n = 0
    for i in range(len(cells)):
        n += cells[i] * refinement
    stiffness, mass, mass_k2, lossy, curvature, scale = np.zeros((6, n + 1), dtype=intervals.dtype)
    j = 0
    for i in range(len(cells)):
        row = intervals[i]
        m = cells[i] * refinement
        h = (row[BOTTOM] - row[TOP]) / m
        rho_h = row[DENSITY] * h
        half = 0.5 * h / row[DENSITY]
        if i == 0:
            scale[0] = np.sqrt(rho_h)
        step = (row[SPEED_BOTTOM] - row[SPEED_TOP]) / m
        for q in range(m + 1):
            c = row[SPEED_TOP] + step * q
            w = half if q == 0 or q == m else 2 * half
            node = j + q
            k2, loss = complex_k2(c, row[LOSS], row[LOSS_PER_HZ], row[LOSS_PER_CYCLE], omega)
            mass[node] += w
            mass_k2[node] += w * k2
            lossy[node] += w * loss
            curvature[node] += w * h * h / 12
            stiffness[node] += (1.0 if q == 0 or q == m else 2.0) / rho_h
            if q > 0:
                scale[node] = rho_h / scale[node - 1]
        j += m
    alpha, beta = np.empty_like(mass), np.empty_like(mass)
    for node in range(n + 1):
        g2 = scale[node] ** 2
        alpha[node] = g2 * (stiffness[node] - mass_k2[node])
        beta[node] = g2 * mass[node]
        lossy[node] *= g2
        curvature[node] *= g2
        mass_k2[node] /= mass[node]
    return alpha, beta, scale, lossy, curvature, mass_k2
