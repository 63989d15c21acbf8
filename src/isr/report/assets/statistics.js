// Numbers from rows of samples: quantiles, smooth densities in one and two dimensions, lines of equal density.

function quantile(sorted, p) {
  if (!sorted.length) return NaN;
  const at = p * (sorted.length - 1), below = Math.floor(at);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

// columns: the values of each variable, sorted.
function summaryOf(columns) {
  return columns.map((sorted) => {
    let sum = 0, square = 0;
    for (let i = 0; i < sorted.length; i++) sum += sorted[i];
    const mean = sum / sorted.length;
    for (let i = 0; i < sorted.length; i++) square += (sorted[i] - mean) ** 2;
    const sd = Math.sqrt(square / sorted.length);
    const [q05, q25, q50, q75, q95] = [0.05, 0.25, 0.5, 0.75, 0.95].map((p) => quantile(sorted, p));
    const wide = Math.min(sd, (q75 - q25) / 1.349) || sd;
    return { mean, sd, q05, q25, q50, q75, q95, wide, low: quantile(sorted, 0.001), high: quantile(sorted, 0.999) };
  });
}

// Arrays for one use at a time, kept from frame to frame; each comes filled with zeros.
const kept = new Map();
function scratch(name, length) {
  if (!kept.has(name) || kept.get(name).length !== length) kept.set(name, new Float64Array(length));
  return kept.get(name).fill(0);
}

// Gaussian blur along one axis of a grid, in place; sigma in cells.
function blur(grid, length, stride, lines, lineStride, sigma) {
  if (!(sigma > 0.3)) return;
  const reach = Math.min(Math.ceil(3 * sigma), length - 1);
  const weights = Float64Array.from({ length: reach + 1 }, (_, k) => Math.exp(-0.5 * (k / sigma) ** 2));
  let total = weights[0];
  for (let k = 1; k <= reach; k++) total += 2 * weights[k];
  const row = scratch("row", length);
  for (let line = 0; line < lines; line++) {
    for (let i = 0; i < length; i++) {
      const own = grid[line * lineStride + i * stride];
      if (own === 0) continue;
      const share = own / total;
      row[i] += share * weights[0];
      for (let k = 1; k <= reach; k++) {
        // What would leave the grid is reflected, so that nothing is lost at an edge.
        row[i + k < length ? i + k : 2 * length - 1 - i - k] += share * weights[k];
        row[i - k >= 0 ? i - k : k - i - 1] += share * weights[k];
      }
    }
    for (let i = 0; i < length; i++) {
      grid[line * lineStride + i * stride] = row[i];
      row[i] = 0;
    }
  }
}

// First cell of a grid inside a bound of the variable and the one past the last: no density is smoothed across a bound.
function insideBounds([low, high], bins, [least, most] = [null, null]) {
  const cell = (v) => ((v - low) / (high - low)) * bins;
  const first = least === null ? 0 : Math.min(bins - 1, Math.max(0, Math.round(cell(least))));
  const last = most === null ? bins : Math.max(first + 1, Math.min(bins, Math.round(cell(most))));
  // How much of the variable's range the first and the last cell hold, with what lies between them and the bounds.
  const wide = [least === null ? 1 : first + 1 - cell(least), most === null ? 1 : cell(most) - last + 1];
  return [first, last, ...wide.map((w) => (w > 0.4 && w < 1.6 ? w : 1))];
}

function gathered(grid, first, last, wideFirst, wideLast) {
  if (first > 0) grid[first] += grid[first - 1];
  if (last < grid.length) grid[last - 1] += grid[last];
  grid[first] /= wideFirst;
  grid[last - 1] /= wideLast;
  return grid.fill(0, 0, first).fill(0, last);
}

function densityAlong(x, n, width, column, low, high, bins, sigma, bounds) {
  const grid = new Float64Array(bins);
  const scale = bins / (high - low);
  for (let i = 0; i < n; i++) {
    const cell = Math.floor((x[i * width + column] - low) * scale);
    if (cell >= 0 && cell < bins) grid[cell] += scale / n;
  }
  const [first, last, wideFirst, wideLast] = insideBounds([low, high], bins, bounds);
  gathered(grid, first, last, wideFirst, wideLast);
  blur(grid.subarray(first, last), last - first, 1, 1, bins, sigma * scale);
  return grid;
}

// Row 0 is the top, as on a screen.
function densityOver(x, n, width, i, j, rangeI, rangeJ, bins, sigmaI, sigmaJ, boundsI, boundsJ) {
  const grid = scratch("pair", bins * bins);
  const scaleI = bins / (rangeI[1] - rangeI[0]), scaleJ = bins / (rangeJ[1] - rangeJ[0]);
  for (let k = 0; k < n; k++) {
    const across = Math.floor((x[k * width + i] - rangeI[0]) * scaleI);
    const up = Math.floor((x[k * width + j] - rangeJ[0]) * scaleJ);
    if (across >= 0 && across < bins && up >= 0 && up < bins) grid[(bins - 1 - up) * bins + across] += 1;
  }
  const [left, right] = insideBounds(rangeI, bins, boundsI), [lowest, highest] = insideBounds(rangeJ, bins, boundsJ);
  blur(grid.subarray(left), right - left, 1, bins, bins, sigmaI * scaleI);
  blur(grid.subarray((bins - highest) * bins), highest - lowest, bins, bins, 1, sigmaJ * scaleJ);
  return grid;
}

// The densities above which the given shares of the whole lie, by counting in small steps of density.
function levelsOf(grid, shares) {
  const steps = 1024;
  let largest = 0, total = 0;
  for (const v of grid) {
    if (v > largest) largest = v;
    total += v;
  }
  if (!(largest > 0)) return shares.map(() => Infinity);
  const mass = scratch("mass", steps + 1);
  for (const v of grid) mass[Math.floor((v / largest) * steps)] += v;
  const levels = [];
  for (let k = steps, sum = 0; k >= 0 && levels.length < shares.length; k--) {
    sum += mass[k];
    while (levels.length < shares.length && sum >= shares[levels.length] * total) levels.push((k / steps) * largest);
  }
  return levels;
}

// Lines of equal density by marching squares; draw(x0, y0, x1, y1) gets each piece, in cells from the top left.
function contour(grid, bins, level, draw) {
  const cross = (a, b) => (level - a) / (b - a);
  for (let r = 0; r < bins - 1; r++) {
    for (let c = 0; c < bins - 1; c++) {
      const a = grid[r * bins + c], b = grid[r * bins + c + 1];
      const e = grid[(r + 1) * bins + c], d = grid[(r + 1) * bins + c + 1];
      const inside = (a > level ? 1 : 0) + (b > level ? 2 : 0) + (d > level ? 4 : 0) + (e > level ? 8 : 0);
      if (inside === 0 || inside === 15) continue;
      const points = [];
      if (a > level !== b > level) points.push(c + cross(a, b), r);
      if (b > level !== d > level) points.push(c + 1, r + cross(b, d));
      if (e > level !== d > level) points.push(c + cross(e, d), r + 1);
      if (a > level !== e > level) points.push(c, r + cross(a, e));
      for (let k = 0; k + 3 < points.length; k += 4) draw(points[k], points[k + 1], points[k + 2], points[k + 3]);
    }
  }
}
