"""Kernels on the tridiagonal mesh: mode phases by Sturm counts, and mode shapes from two-sided marches.

All kernels carry many trial values ``lam`` side by side (the *lanes*, the modes of one frequency), so that the
compiler fills vector registers; the recurrence itself cannot be vectorised along depth.

The *phase* of a trial value: march down from the surface and up from the bottom to a common node. Each side
contributes pi for every sign change and the remainder atan2(psi, psi'); the sum is a continuous, decreasing function
of lam and equals m pi exactly at eigenvalue m. The integer part is the Sturm count, so a mode cannot be missed, and
the function is smooth enough for Newton's method.

Numba's cache follows the file of the outermost kernel only: after an edit here or in ``mesh.py``, delete the package's
``__pycache__`` or the old code keeps running.
"""

from collections import namedtuple

import numpy as np

from isr.tables.extras import need

njit = need("numba").njit

# One mesh: the arrays of ``mesh.assemble``, and
#   node, density       where the marches meet (best where sound is slowest: every mode oscillates there)
#   k2_max              largest (omega/c)^2, above every lam
#   admittance          g^2/rho_b at the last node, 0 over a rigid bottom
#   closing_k2, _loss   (omega/c_b)^2 and minus its imaginary part
System = namedtuple(
    "System",
    "alpha beta scale lossy curvature mean_k2 node density k2_max admittance closing_k2 closing_loss",
)
LANES = 16
_BLOCK = 32
_HUGE = 1e100


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _march(alpha, beta, first, direction, n_steps, lam, now, before, mass, count):
    """Advance all lanes ``n_steps`` nodes from ``first``; add up mass and sign changes.

    Four nodes a pass keep the recurrence in registers. Signs are compared every fourth node: at ten or more points
    a wavelength two zeros are never that close.
    """
    n_lanes = len(lam)
    done = 0
    since_check = 0
    while done + 4 <= n_steps:
        j = first + direction * done
        a0, a1, a2, a3 = alpha[j], alpha[j + direction], alpha[j + 2 * direction], alpha[j + 3 * direction]
        b0, b1, b2, b3 = beta[j], beta[j + direction], beta[j + 2 * direction], beta[j + 3 * direction]
        for i in range(n_lanes):
            x = lam[i]
            p = now[i]
            q0 = (a0 + b0 * x) * p - before[i]
            q1 = (a1 + b1 * x) * q0 - p
            q2 = (a2 + b2 * x) * q1 - q0
            q3 = (a3 + b3 * x) * q2 - q1
            mass[i] += (b0 * p * p + b1 * q0 * q0) + (b2 * q1 * q1 + b3 * q2 * q2)
            count[i] += 1.0 if p * q3 < 0.0 else 0.0
            before[i] = q2
            now[i] = q3
        done += 4
        since_check += 1
        if since_check == 8:
            since_check = 0
            _rescale(now, before, mass)
    while done < n_steps:
        j = first + direction * done
        a0, b0 = alpha[j], beta[j]
        for i in range(n_lanes):
            p = now[i]
            q0 = (a0 + b0 * lam[i]) * p - before[i]
            mass[i] += b0 * p * p
            count[i] += 1.0 if p * q0 < 0.0 else 0.0
            before[i] = p
            now[i] = q0
        done += 1
    _rescale(now, before, mass)


@njit(cache=True, nogil=True)
def _rescale(now, before, mass):
    for i in range(len(now)):
        if abs(now[i]) > _HUGE:
            now[i] /= _HUGE
            before[i] /= _HUGE
            mass[i] /= _HUGE * _HUGE


@njit(cache=True, nogil=True)
def decay_rate(lam, closing_k2):
    """Return gamma of the closing half-space, kept off zero at its cut-off."""
    return np.sqrt(max(lam - closing_k2, 1e-13 * lam + 1e-300))


@njit(cache=True, nogil=True, error_model="numpy")
def phases(system, lam, phase, derivative):
    """Write the phase of every trial value and its derivative with respect to lam."""
    alpha, beta, scale, node = system.alpha, system.beta, system.scale, system.node
    admittance, closing_k2, k2_max = system.admittance, system.closing_k2, system.k2_max
    n = len(alpha) - 1
    n_lanes = len(lam)
    now, before = np.ones(n_lanes), np.zeros(n_lanes)
    mass, count = np.zeros(n_lanes), np.zeros(n_lanes)
    down, down_before, down_mass = np.ones(n_lanes), np.zeros(n_lanes), np.zeros(n_lanes)
    _march(alpha, beta, 1, 1, node - 1, lam, down, down_before, down_mass, count)
    for i in range(n_lanes):
        gamma = decay_rate(lam[i], closing_k2)
        now[i] = alpha[n] + beta[n] * lam[i] + admittance * gamma
        before[i] = 1.0
        mass[i] = beta[n] + 0.5 * admittance / gamma
        if now[i] < 0.0:
            count[i] += 1.0
    _march(alpha, beta, n - 1, -1, n - 1 - node, lam, now, before, mass, count)
    # Each side takes its own share of the diagonal, so that the two fluxes are those of psi'/rho.
    share, share_up = scale[node] / scale[node - 1], scale[node] / scale[node + 1]
    for i in range(n_lanes):
        s = scale[node] ** 2 / system.density * np.sqrt(max(k2_max - lam[i], 1e-12 * k2_max))
        bend = 0.5 * (share + share_up - alpha[node] - beta[node] * lam[i])
        half_mass = 0.5 * beta[node]
        flux = (share - bend) * down[i] - down_before[i]
        flux_up = (share_up - bend) * now[i] - before[i]
        sign = 1.0 if down[i] >= 0.0 else -1.0
        sign_up = 1.0 if now[i] >= 0.0 else -1.0
        phase[i] = (
            np.pi * count[i]
            + np.arctan2(s * abs(down[i]), sign * flux)
            + np.arctan2(s * abs(now[i]), sign_up * flux_up)
        )
        whole = down_mass[i] + half_mass * down[i] ** 2
        whole_up = mass[i] + half_mass * now[i] ** 2
        derivative[i] = -s * (
            whole / (flux**2 + (s * down[i]) ** 2) + whole_up / (flux_up**2 + (s * now[i]) ** 2)
        )


# In the kernels below each inner loop writes one or two arrays only: with more, the compiler's checks for overlap
# exceed its limit and the loop stays scalar. The number of lanes comes at run time for the same reason: a loop of known
# length is unrolled before it is vectorised.


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _march_stored(alpha, beta, lam, down, up, down_powers, up_powers, admittance, closing_k2):
    """Store both marches of up to LANES trial values, node by node.

    Values that grow too large are divided by _HUGE from there on; the powers say, for each block of nodes, how often.
    Returns whether that happened at all.
    """
    n = len(alpha) - 1
    lanes = len(lam)
    scaled = False
    for i in range(lanes):
        down[0, i], down[1, i], up[n, i] = 0.0, 1.0, 1.0
        up[n - 1, i] = alpha[n] + beta[n] * lam[i] + admittance * decay_rate(lam[i], closing_k2)
    for j in range(1, n):
        a, b = alpha[j], beta[j]
        for i in range(lanes):
            down[j + 1, i] = (a + b * lam[i]) * down[j, i] - down[j - 1, i]
        if j % _BLOCK == 0:
            scaled |= _rescale_rows(down[j], down[j + 1], down_powers[j // _BLOCK :, :lanes])
    for j in range(n - 1, 0, -1):
        a, b = alpha[j], beta[j]
        for i in range(lanes):
            up[j - 1, i] = (a + b * lam[i]) * up[j, i] - up[j + 1, i]
        if j % _BLOCK == _BLOCK - 1:
            scaled |= _rescale_rows(up[j], up[j - 1], up_powers[: j // _BLOCK + 1, :lanes])
    return scaled


@njit(cache=True, nogil=True)
def _rescale_rows(older, newer, powers):
    scaled = False
    for i in range(powers.shape[1]):
        if abs(newer[i]) > _HUGE:
            older[i] /= _HUGE
            newer[i] /= _HUGE
            for b in range(len(powers)):
                powers[b, i] += 1.0
            scaled = True
    return scaled


@njit(cache=True, nogil=True)
def _level(down, up, down_powers, up_powers, lanes):
    """Bring rescaled marches to one scale, that of the node where |down * up| is largest; what underflows is gone."""
    for i in range(lanes):
        best, peak = 1, -np.inf
        for j in range(1, len(down)):
            product = abs(down[j, i] * up[j, i])
            if product > 0.0:
                size = np.log(product) + np.log(_HUGE) * (
                    down_powers[j // _BLOCK, i] + up_powers[j // _BLOCK, i]
                )
                if size > peak:
                    best, peak = j, size
        base_down, base_up = down_powers[best // _BLOCK, i], up_powers[best // _BLOCK, i]
        for j in range(len(down)):
            down[j, i] = (
                down[j, i] * _HUGE ** min(down_powers[j // _BLOCK, i] - base_down, 0.0) if j <= best else 0.0
            )
            up[j, i] = up[j, i] * _HUGE ** min(up_powers[j // _BLOCK, i] - base_up, 0.0) if j >= best else 0.0


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _join(down, up, scale, best, to_down, to_up):
    """Find the node where |psi^2| is largest, and overwrite ``down`` by the shape that is one there."""
    n = len(down) - 1
    lanes = len(best)
    peak = np.zeros(lanes)
    for j in range(1, n + 1):
        index = float(j)
        g2 = scale[j] ** 2
        for i in range(lanes):
            product = abs(g2 * down[j, i] * up[j, i])
            best[i] = index if product > peak[i] else best[i]
            peak[i] = max(product, peak[i])
    for i in range(lanes):
        k = int(best[i])
        to_down[i], to_up[i] = 1.0 / down[k, i], 1.0 / up[k, i]
    for j in range(1, n + 1):
        index = float(j)
        for i in range(lanes):
            above, under = down[j, i] * to_down[i], up[j, i] * to_up[i]
            down[j, i] = above if index <= best[i] else under


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _integrate(beta, lossy, curvature, mean_k2, lam, shape, mass, loss, error):
    """Add up mass, loss and discretisation error of LANES modes."""
    lanes = len(lam)
    mass[:] = 0.0
    loss[:] = 0.0
    error[:] = 0.0
    for j in range(1, len(beta)):
        b, q, e, k2 = beta[j], lossy[j], curvature[j], mean_k2[j]
        for i in range(lanes):
            z2 = shape[j, i] * shape[j, i]
            mass[i] += b * z2
            loss[i] += q * z2
        for i in range(lanes):
            bend = shape[j, i] * (k2 - lam[i])
            error[i] += e * bend * bend


@njit(cache=True, nogil=True, error_model="numpy")
def shapes(system, lam, samples, below, out, refined, imaginary, error):
    """Turn close trial values into modes: one step of inverse iteration in its two-sided form.

    The column of the inverse of A(lam) with the largest diagonal entry is the best approximation to the mode. Its
    index is where |down * up|, in terms of psi, is largest (the Wronskian of the two marches is constant), and the
    column is the downward march above that node and the upward march below: stable, and free of divisions. The
    residual at the node divided by the mass is the Rayleigh-quotient correction.

    Writes ``out`` (normalised psi at the sample nodes), ``refined`` lam, the ``imaginary`` part of k_r^2 and the
    estimated discretisation ``error`` of lam.
    """
    alpha, beta, scale = system.alpha, system.beta, system.scale
    admittance, closing_k2 = system.admittance, system.closing_k2
    n = len(alpha) - 1
    shape, up = np.empty((n + 1, LANES)), np.empty((n + 1, LANES))
    best, to_down, to_up = np.ones(LANES), np.empty(LANES), np.empty(LANES)
    mass, loss, defect = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    block = np.empty(LANES)
    down_powers, up_powers = np.empty((n // _BLOCK + 1, LANES)), np.empty((n // _BLOCK + 1, LANES))
    for start in range(0, len(lam), LANES):
        width = min(LANES, len(lam) - start)
        lanes = (width + 3) // 4 * 4
        for i in range(lanes):
            block[i] = lam[start + min(i, width - 1)]
        down_powers[:] = 0.0
        up_powers[:] = 0.0
        if _march_stored(
            alpha, beta, block[:lanes], shape, up, down_powers, up_powers, admittance, closing_k2
        ):
            _level(shape, up, down_powers, up_powers, lanes)
        _join(shape, up, scale, best[:lanes], to_down, to_up)
        _integrate(
            beta, system.lossy, system.curvature, system.mean_k2, block[:lanes], shape, mass, loss, defect
        )
        for i in range(width):
            m = start + i
            k = int(best[i])
            gamma = decay_rate(block[i], closing_k2)
            tail = 0.5 * admittance / gamma * shape[n, i] ** 2
            norm = mass[i] + tail
            residual = alpha[k] + beta[k] * block[i] - shape[k - 1, i]
            residual += admittance * gamma if k == n else -shape[k + 1, i]
            refined[m] = block[i] - residual / norm
            imaginary[m] = (loss[i] + tail * system.closing_loss) / norm
            error[m] = defect[i] / norm
            unit = (1.0 if to_down[i] >= 0.0 else -1.0) / np.sqrt(norm)  # psi rises from the surface
            for s in range(len(samples)):
                out[m, s] = unit * scale[samples[s]] * shape[samples[s], i]
                if below[s] > 0.0:
                    out[m, s] *= np.exp(-gamma * below[s])
