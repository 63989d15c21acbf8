// Follows the model's own source in a worker: draws rows, climbs to the mode, answers questions about one point.
{
  let kept = { n: 0, seed: NaN, values: new Float64Array(0) };

  // The same noise for every observation, so that draws move with it smoothly; fewer rows are the first ones.
  const noiseOf = (n, seed) => {
    if (kept.n < n || kept.seed !== seed) {
      kept = { n, seed, values: new Rng(seed).fill(new Float64Array(n * nLatent)) };
    }
    return kept.values.subarray(0, n * nLatent);
  };

  const densityAt = (x, y) => {
    const value = logProb(x, y);
    return Number.isNaN(value) ? -Infinity : value;
  };

  // The simplex method of Nelder and Mead, upwards.
  const climb = (start, spread, y, budget) => {
    const d = start.length;
    const corner = (x) => ({ x, f: densityAt(x, y) });
    const simplex = [corner(Float64Array.from(start))];
    for (let i = 0; i < d; i++) {
      const x = Float64Array.from(start);
      x[i] += 0.3 * spread[i];
      simplex.push(corner(x));
    }
    let used = d + 1;
    const along = (centre, worst, t) => corner(centre.map((c, i) => c + t * (worst[i] - c)));
    while (used < budget) {
      simplex.sort((a, b) => b.f - a.f);
      const worst = simplex[d];
      if (simplex[0].f - worst.f < 1e-11) break;
      const centre = new Float64Array(d);
      for (let k = 0; k < d; k++) for (let i = 0; i < d; i++) centre[i] += simplex[k].x[i] / d;
      const reflected = along(centre, worst.x, -1);
      used++;
      if (reflected.f > simplex[0].f) {
        const further = along(centre, worst.x, -2);
        used++;
        simplex[d] = further.f > reflected.f ? further : reflected;
      } else if (reflected.f > simplex[d - 1].f) {
        simplex[d] = reflected;
      } else {
        const nearer = along(centre, worst.x, reflected.f > worst.f ? -0.5 : 0.5);
        used++;
        if (nearer.f > Math.max(worst.f, reflected.f)) {
          simplex[d] = nearer;
        } else {
          for (let k = 1; k <= d; k++) simplex[k] = corner(simplex[k].x.map((v, i) => (v + simplex[0].x[i]) / 2));
          used += d;
        }
      }
    }
    simplex.sort((a, b) => b.f - a.f);
    return simplex[0];
  };

  const jobs = {
    draw({ n, seed, y, spread, budget }) {
      const began = performance.now();
      const x = new Float64Array(n * nX);
      const densities = new Float64Array(n);
      drawInto(x, noiseOf(n, seed), n, y, densities);
      let best = 0;
      for (let i = 1; i < n; i++) if (densities[i] > densities[best] || Number.isNaN(densities[best])) best = i;
      const mode = climb(x.subarray(best * nX, (best + 1) * nX), spread, y, budget);
      return { x, mode: mode.x, density: mode.f, ms: performance.now() - began };
    },
    climb({ x, spread, y, budget }) {
      const mode = climb(x, spread, y, budget);
      return { mode: mode.x, density: mode.f };
    },
    point({ noise, y }) {
      const x = new Float64Array(nX), density = new Float64Array(1);
      drawInto(x, noise, 1, y, density);
      return { x, density: density[0] };
    },
    noise({ n, seed }) {
      return { noise: Float64Array.from(noiseOf(n, seed)) };
    },
    logProbs({ x, y }) {
      return { values: Float64Array.from({ length: x.length / nX }, (_, i) => logProb(x.subarray(i * nX, (i + 1) * nX), y)) };
    },
  };

  self.onmessage = ({ data }) => {
    try {
      const answer = jobs[data.job](data);
      self.postMessage({ id: data.id, answer }, answer.x ? [answer.x.buffer] : []);
    } catch (error) {
      self.postMessage({ id: data.id, error: String(error) });
    }
  };
}
