// Follows the model's own source in a worker: draws rows, climbs to the mode, answers questions about one point.
{
  // The mode is sought where draws go; farther out a model may have spikes that no data ever spoke against.
  const REACH = 3;
  let kept = { n: 0, seed: NaN, values: new Float64Array(0) };

  // The same noise for every observation, so that draws move with it smoothly; fewer rows are the first ones.
  const noiseOf = (n, seed) => {
    if (kept.n < n || kept.seed !== seed) {
      kept = { n, seed, values: new Rng(seed).fill(new Float64Array(n * nLatent)) };
    }
    return kept.values.subarray(0, n * nLatent);
  };

  // The finite values of each variable, sorted.
  const inOrder = (x, n) => Array.from({ length: nX }, (_, column) => {
    const values = new Float64Array(n);
    let found = 0;
    for (let i = 0; i < n; i++) {
      const v = x[i * nX + column];
      if (Number.isFinite(v)) values[found++] = v;
    }
    return values.subarray(0, found).sort();
  });

  const within = (noise) => noise.every((v) => Math.abs(v) <= REACH);

  // A point by the noise it stands for: in these coordinates the posterior is round and bounds are kept.
  const pointAt = (noise, y) => {
    const x = new Float64Array(nX), density = new Float64Array(1);
    drawInto(x, noise, 1, y, density);
    const f = within(noise) && !Number.isNaN(density[0]) ? density[0] : -Infinity;
    return { noise, x, density: density[0], f };
  };

  // The simplex method of Nelder and Mead, upwards.
  const climb = (start, y, budget) => {
    const d = start.length;
    const simplex = [pointAt(Float64Array.from(start), y)];
    for (let i = 0; i < d; i++) {
      const noise = Float64Array.from(start);
      noise[i] += noise[i] > 0 ? -0.3 : 0.3;
      simplex.push(pointAt(noise, y));
    }
    const along = (centre, worst, t) => pointAt(centre.map((c, i) => c + t * (worst[i] - c)), y);
    for (let used = d + 1; used < budget; ) {
      simplex.sort((a, b) => b.f - a.f);
      const worst = simplex[d];
      if (simplex[0].f - worst.f < 1e-12) break;
      const centre = new Float64Array(d);
      for (let k = 0; k < d; k++) for (let i = 0; i < d; i++) centre[i] += simplex[k].noise[i] / d;
      const reflected = along(centre, worst.noise, -1);
      used += 2;
      if (reflected.f > simplex[0].f) {
        const further = along(centre, worst.noise, -2);
        simplex[d] = further.f > reflected.f ? further : reflected;
      } else if (reflected.f > simplex[d - 1].f) {
        simplex[d] = reflected;
      } else {
        const nearer = along(centre, worst.noise, reflected.f > worst.f ? -0.5 : 0.5);
        if (nearer.f > Math.max(worst.f, reflected.f)) {
          simplex[d] = nearer;
        } else {
          const best = simplex[0].noise;
          for (let k = 1; k <= d; k++) simplex[k] = pointAt(simplex[k].noise.map((v, i) => (v + best[i]) / 2), y);
          used += d;
        }
      }
    }
    return simplex.reduce((a, b) => (b.f > a.f ? b : a));
  };

  const densest = (noise, densities) => {
    let best = -1;
    for (let i = 0; i < densities.length; i++) {
      if ((best < 0 || densities[i] > densities[best]) && within(noise.subarray(i * nLatent, (i + 1) * nLatent))) best = i;
    }
    return noise.subarray(Math.max(0, best) * nLatent, (Math.max(0, best) + 1) * nLatent);
  };

  const jobs = {
    draw({ n, seed, y, budget }) {
      const began = performance.now();
      const x = new Float64Array(n * nX), densities = new Float64Array(n), noise = noiseOf(n, seed);
      drawInto(x, noise, n, y, densities);
      const mode = climb(densest(noise, densities), y, budget);
      return { x, columns: inOrder(x, n), mode, ms: performance.now() - began };
    },
    climb({ noise, y, budget }) {
      return { mode: climb(noise, y, budget) };
    },
    point({ noise, y }) {
      return { point: pointAt(noise, y) };
    },
    noise({ n, seed }) {
      return { noise: Float64Array.from(noiseOf(n, seed)) };
    },
  };

  self.onmessage = ({ data }) => {
    try {
      const answer = jobs[data.job](data);
      const arrays = [answer.x, ...(answer.columns || [])].filter(Boolean);
      self.postMessage({ id: data.id, answer }, arrays.map((array) => array.buffer));
    } catch (error) {
      self.postMessage({ id: data.id, error: String(error) });
    }
  };
}
