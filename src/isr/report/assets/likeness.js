// Is an observation like the training data? The three measures of isr.posterior.outliers, against their largest there.

function measuresOf(training, y) {
  const { shift, scale, directions, residualScale, references } = training;
  const standard = y.map((v, i) => (v - shift[i]) / scale[i]);
  const n = directions[0].length;
  const whitened = Array.from({ length: n }, (_, k) => standard.reduce((sum, v, i) => sum + v * directions[i][k], 0));
  if (residualScale > 0) {
    const left = [...standard];
    for (let k = 0; k < n; k++) {
      const length = Math.hypot(...directions.map((row) => row[k]));
      directions.forEach((row, i) => { left[i] -= ((whitened[k] / length) * row[k]) / length; });
    }
    whitened.push(Math.hypot(...left) / residualScale);
  }
  const distances = references.map((row) => Math.hypot(...row.map((v, i) => v - whitened[i]))).sort((a, b) => a - b);
  const nearest = distances[Math.min(3, distances.length - 1) - 1];
  return [Math.hypot(...whitened), nearest, Math.max(...standard.map(Math.abs))];
}

// What is unusual about an observation, in words; nothing where it is like the training data.
function unlikeness(training, y, variables) {
  if (!measuresOf(training, y).some((v, k) => v > training.largest[k])) return "";
  const outside = variables.filter((_, i) => y[i] < training.low[i] || y[i] > training.high[i]).map((v) => v.name);
  const where = outside.length ? `outside the trained range: ${outside.slice(0, 5).join(", ")}` : "within each range, but not their combination";
  return `This observation is unlike the training data (${where}). The posterior is an extrapolation.`;
}
