// Follows the model's own source in a worker: draws rows, climbs to the densest point, answers questions about one point.
{
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

  // From here to `jobs`: the search for the densest point, step by step that of isr/posterior/maximum.py.
  const [NEIGHBOURS, LONGEST_STEP, AT_BOUND, NEAR_BOUND, H] = [0.05, 0.5, 1e-9, 0.02, 1e-4];

  const hashed = (counter) => {
    const h = Math.imul(counter, 0x9e3779b9);
    let v = Math.imul(h ^ (h >>> 16), 0x21f0aaad);
    v = Math.imul(v ^ (v >>> 15), 0x735a2d97);
    return (v ^ (v >>> 15)) >>> 0;
  };
  const normalPoints = (n) => Float64Array.from(
    { length: n * nLatent }, (_, i) => isr_phi_inverse((hashed(i + 1) + 0.5) / 4294967296),
  );

  const norm = (v) => Math.sqrt(v.reduce((sum, a) => sum + a * a, 0));
  const dot = (a, b) => a.reduce((sum, v, i) => sum + v * b[i], 0);
  const plus = (a, b, t) => a.map((v, i) => v + t * b[i]);
  const median = (values) => {
    const sorted = Float64Array.from(values).sort(), half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  };

  // A point by the noise it stands for: in these coordinates the posterior is round and bounds are kept.
  const pointAt = (noise, y) => {
    const x = new Float64Array(nX), density = new Float64Array(1);
    drawInto(x, noise, 1, y, density);
    return { noise, x, density: density[0] };
  };

  const unit = () => Array.from({ length: nLatent }, (_, i) => Float64Array.from({ length: nLatent }, (__, k) => +(i === k)));

  // BFGS upwards in u, with noise = u / sqrt(1 + |u|^2 / radius^2); slopes are central differences.
  const climb = (start, y, radius, budget) => {
    const inside = (u) => u.map((v) => v / Math.sqrt(1 + (norm(u) / radius) ** 2));
    const rows = new Float64Array((2 * nLatent + 1) * nLatent), xs = new Float64Array((2 * nLatent + 1) * nX);
    const densities = new Float64Array(2 * nLatent + 1);
    const at = (u) => {
      for (let k = 0; k <= 2 * nLatent; k++) {
        const moved = Float64Array.from(u);
        if (k) moved[(k - 1) >> 1] += k % 2 ? H : -H;
        rows.set(inside(moved), k * nLatent);
      }
      drawInto(xs, rows, 2 * nLatent + 1, y, densities);
      const slope = Float64Array.from(u, (_, i) => (densities[2 * i + 1] - densities[2 * i + 2]) / (2 * H));
      return densities[0] > -Infinity && slope.every(Number.isFinite)
        ? { value: densities[0], slope } : { value: -Infinity, slope: new Float64Array(nLatent) };
    };
    let u = Float64Array.from(start, (v) => v / Math.sqrt(1 - (norm(start) / radius) ** 2));
    let { value, slope } = at(u), inverse = unit();
    for (let count = 0; count < budget; count++) {
      let step = Float64Array.from(inverse, (row) => dot(row, slope));
      if (!(dot(step, slope) > 0)) [inverse, step] = [unit(), slope];
      const short = Math.min(1, LONGEST_STEP / Math.max(norm(step), 1e-300));
      step = step.map((v) => v * short);
      let next = null;
      for (let tries = 0; tries < 30; tries++, step = step.map((v) => v / 2)) {
        const found = at(plus(u, step, 1));
        if (found.value >= value + 1e-4 * dot(step, slope)) {
          next = found;
          break;
        }
      }
      if (!next) break;
      const change = plus(slope, next.slope, -1), gain = next.value - value;
      u = plus(u, step, 1);
      ({ value, slope } = next);
      if (norm(slope) < 1e-9 || (gain < 1e-14 * (1 + Math.abs(value)) && norm(step) < 1e-10)) break;
      const along = dot(step, change);
      if (along > 1e-12 * norm(step) * norm(change)) {
        const turned = inverse.map((row) => dot(row, change)), scale = 1 + dot(change, turned) / along;
        inverse = inverse.map((row, i) => row.map(
          (v, k) => v + (scale * step[i] * step[k] - turned[i] * step[k] - step[i] * turned[k]) / along,
        ));
      }
    }
    return pointAt(inside(u), y);
  };

  // Bounds that x is nearer to than a share of their width, or where one is open of its distance from the median.
  const boundsAt = (x, { bounds }, middle, share) => bounds.flatMap(([low, high], i) => {
    const width = low !== null && high !== null ? high - low : low !== null ? middle[i] - low : high - middle[i];
    if (low !== null && x[i] - low < share * width) return [{ i, side: "lower", bound: low }];
    return high !== null && high - x[i] < share * width ? [{ i, side: "upper", bound: high }] : [];
  });

  const noteOf = (x, search, middle) => {
    const where = boundsAt(x, search, middle, NEAR_BOUND)
      .map(({ i, side, bound }) => `the ${side} bound of ${search.names[i]} (${Number(bound.toPrecision(6))})`);
    const what = where.length
      ? `the density rises towards ${where.join(" and ")}, where almost no draw falls`
      : "the density has a thin spike that almost no draw meets";
    return `${what}, so its densest point does not say where the mass is; quote mean and interval`;
  };

  // The densest point that carries mass: x, or null with a note. search: see explorer.py.
  const modeOf = (y, search, { points: n, densest, first, budget }) => {
    const all = normalPoints(n), xs = new Float64Array(n * nX), densities = new Float64Array(n);
    drawInto(xs, all, n, y, densities);
    const rows = Array.from({ length: n }, (_, k) => ({
      noise: all.subarray(k * nLatent, (k + 1) * nLatent), x: xs.subarray(k * nX, (k + 1) * nX), density: densities[k],
    })).filter(({ x, density }) => x.every(Number.isFinite) && Number.isFinite(density));
    const within = rows.filter(({ noise }) => norm(noise) < search.radius);
    if (!within.length) return { x: null, noise: null, density: NaN, note: "no draw is finite" };
    const sorted = [...within].sort((a, b) => b.density - a.density);
    const starts = new Set([...sorted.slice(0, densest), ...within.slice(0, first)]);
    const ends = [...starts].map(({ noise }) => climb(noise, y, search.radius, budget))
      .sort((a, b) => (Number.isNaN(b.density) ? -Infinity : b.density) - (Number.isNaN(a.density) ? -Infinity : a.density));
    const middle = search.bounds.map((_, i) => median(rows.map(({ x }) => x[i])));
    const carriesMass = ({ noise, density }) => {
      const distances = rows.map((row, k) => [norm(plus(row.noise, noise, -1)), k]).sort((a, b) => a[0] - b[0]);
      const nearest = distances.slice(0, Math.max(1, Math.floor(NEIGHBOURS * rows.length)));
      return density - median(nearest.map(([, k]) => rows[k].density)) <= search.slack;
    };
    const found = ends.find((end) => !boundsAt(end.x, search, middle, AT_BOUND).length && carriesMass(end));
    return found ? { ...found, note: "" } : { ...ends[0], x: null, note: noteOf(ends[0].x, search, middle) };
  };

  const jobs = {
    draw({ n, seed, y }) {
      const began = performance.now();
      const x = new Float64Array(n * nX), densities = new Float64Array(n), noise = noiseOf(n, seed);
      drawInto(x, noise, n, y, densities);
      return { x, columns: inOrder(x, n), ms: performance.now() - began };
    },
    mode({ y, search, effort }) {
      return { mode: modeOf(y, search, effort) };
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
