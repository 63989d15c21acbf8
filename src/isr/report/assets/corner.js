// Marginals along the diagonal, pairs below it, on one canvas.

const PAIR_BINS = 48;
const LINE_BINS = 160;

class Corner {
  constructor(canvas) {
    this.canvas = canvas;
    this.tile = element("canvas", { width: PAIR_BINS, height: PAIR_BINS });
    this.pixels = new ImageData(PAIR_BINS, PAIR_BINS);
  }

  // picture: variables, ranges, bounds, x, n, summary, mode, truth, point, prior, shown (which variables).
  draw(picture) {
    const width = this.canvas.shownWidth, d = picture.shown.length;
    if (!width || !d) return;
    const left = d > 1 ? 54 : 12, bottom = 46, gap = width < 500 ? 5 : 10;
    const cell = (width - left) / d - gap;
    const tall = d === 1 ? 220 : Math.min(cell, 190);
    const context = fitted(this.canvas, width, d * (tall + gap) + bottom);
    context.font = `${width < 500 ? 10 : 11.5}px system-ui, sans-serif`;
    picture.shown.forEach((i, row) => {
      for (let column = 0; column <= row; column++) {
        const box = { x: left + column * (cell + gap), y: row * (tall + gap), w: cell, h: tall };
        if (column === row) this.marginal(context, box, picture, i);
        else this.pair(context, box, picture, picture.shown[column], i);
        if (row === d - 1) this.below(context, box, picture, picture.shown[column]);
        if (column === 0 && row > 0) this.beside(context, box, picture, i);
      }
    });
  }

  marginal(context, box, picture, i) {
    const [low, high] = picture.ranges[i], own = picture.summary[i];
    const sigma = 0.9 * own.wide * picture.n ** -0.2;
    const grid = densityAlong(picture.x, picture.n, picture.variables.length, i, low, high, LINE_BINS, sigma, picture.bounds[i]);
    const prior = picture.prior && picture.prior(i, low, high);
    let top = 1e-300;
    for (const v of grid) top = Math.max(top, v);
    if (prior) for (const v of prior) top = Math.max(top, v);
    const at = (v) => box.x + ((v - low) / (high - low)) * box.w;
    const up = (v) => box.y + box.h - (v / (1.08 * top)) * box.h;
    context.save();
    this.frame(context, box);
    context.clip();
    const area = (from, to, alpha) => {
      context.beginPath();
      context.moveTo(at(from), up(0));
      for (let k = 0; k < LINE_BINS; k++) {
        const v = low + ((k + 0.5) / LINE_BINS) * (high - low);
        if (v >= from && v <= to) context.lineTo(at(v), up(grid[k]));
      }
      context.lineTo(at(to), up(0));
      context.globalAlpha = alpha;
      context.fillStyle = COLOURS.one;
      context.fill();
      context.globalAlpha = 1;
    };
    area(low, high, 0.14);
    area(Math.max(low, own.q05), Math.min(high, own.q95), 0.24);
    area(Math.max(low, own.q25), Math.min(high, own.q75), 0.34);
    if (prior) this.curve(context, prior, at, up, low, high, COLOURS.prior, [4, 3]);
    this.curve(context, grid, at, up, low, high, COLOURS.one, []);
    for (const [values, colour] of [[picture.mode, COLOURS.two], [picture.truth, COLOURS.three], [picture.point, COLOURS.three]]) {
      if (!values || !Number.isFinite(values[i])) continue;
      context.beginPath();
      context.moveTo(at(values[i]), box.y + 3);
      context.lineTo(at(values[i]), box.y + box.h);
      context.strokeStyle = colour;
      context.lineWidth = 2;
      context.stroke();
    }
    context.restore();
  }

  curve(context, grid, at, up, low, high, colour, dash) {
    context.beginPath();
    for (let k = 0; k < grid.length; k++) context.lineTo(at(low + ((k + 0.5) / grid.length) * (high - low)), up(grid[k]));
    context.setLineDash(dash);
    context.strokeStyle = colour;
    context.lineWidth = 1.6;
    context.stroke();
    context.setLineDash([]);
  }

  pair(context, box, picture, i, j) {
    const [rangeI, rangeJ] = [picture.ranges[i], picture.ranges[j]];
    const narrow = 0.8 * picture.n ** (-1 / 6);
    const grid = densityOver(
      picture.x, picture.n, picture.variables.length, i, j, rangeI, rangeJ, PAIR_BINS,
      narrow * picture.summary[i].wide, narrow * picture.summary[j].wide, picture.bounds[i], picture.bounds[j],
    );
    const levels = levelsOf(grid, [0.5, 0.9]);
    context.save();
    this.frame(context, box);
    context.clip();
    this.shade(context, box, grid);
    context.strokeStyle = COLOURS.one;
    levels.forEach((level, k) => {
      context.beginPath();
      context.lineWidth = k ? 1 : 1.6;
      const sx = box.w / PAIR_BINS, sy = box.h / PAIR_BINS;
      contour(grid, PAIR_BINS, level, (a, b, c, d) => {
        context.moveTo(box.x + (a + 0.5) * sx, box.y + (b + 0.5) * sy);
        context.lineTo(box.x + (c + 0.5) * sx, box.y + (d + 0.5) * sy);
      });
      context.stroke();
    });
    const at = (v) => [
      box.x + ((v[i] - rangeI[0]) / (rangeI[1] - rangeI[0])) * box.w,
      box.y + box.h - ((v[j] - rangeJ[0]) / (rangeJ[1] - rangeJ[0])) * box.h,
    ];
    if (picture.mode) this.diamond(context, at(picture.mode));
    if (picture.truth) this.cross(context, at(picture.truth));
    if (picture.point) this.cross(context, at(picture.point));
    context.restore();
  }

  shade(context, box, grid) {
    let largest = 1e-300;
    for (const v of grid) if (v > largest) largest = v;
    const colour = parseInt(COLOURS.one.slice(1), 16), bytes = this.pixels.data;
    for (let k = 0; k < grid.length; k++) {
      bytes[4 * k] = colour >> 16;
      bytes[4 * k + 1] = (colour >> 8) & 255;
      bytes[4 * k + 2] = colour & 255;
      bytes[4 * k + 3] = 190 * Math.sqrt(grid[k] / largest);
    }
    this.tile.getContext("2d").putImageData(this.pixels, 0, 0);
    context.imageSmoothingEnabled = true;
    context.drawImage(this.tile, box.x, box.y, box.w, box.h);
  }

  frame(context, box) {
    context.beginPath();
    context.rect(box.x, box.y, box.w, box.h);
    context.strokeStyle = COLOURS.line;
    context.lineWidth = 1;
    context.stroke();
  }

  diamond(context, [x, y]) {
    context.beginPath();
    for (const [a, b] of [[0, -6], [6, 0], [0, 6], [-6, 0]]) context.lineTo(x + a, y + b);
    context.closePath();
    context.fillStyle = COLOURS.two;
    context.strokeStyle = COLOURS.card;
    context.lineWidth = 1.5;
    context.fill();
    context.stroke();
  }

  cross(context, [x, y]) {
    context.beginPath();
    context.moveTo(x - 6, y - 6);
    context.lineTo(x + 6, y + 6);
    context.moveTo(x + 6, y - 6);
    context.lineTo(x - 6, y + 6);
    context.strokeStyle = COLOURS.three;
    context.lineWidth = 2.5;
    context.stroke();
  }

  below(context, box, picture, i) {
    const [low, high] = picture.ranges[i];
    context.fillStyle = COLOURS.soft;
    context.textAlign = "center";
    for (const v of roundTicks(low, high, Math.max(4, box.w / 50))) {
      const at = box.x + ((v - low) / (high - low)) * box.w;
      if (at > box.x + 8 && at < box.x + box.w - 8) context.fillText(tickText(v), at, box.y + box.h + 15);
    }
    context.fillStyle = COLOURS.ink;
    context.fillText(this.short(context, named(picture.variables[i]), box.w), box.x + box.w / 2, box.y + box.h + 34);
  }

  beside(context, box, picture, j) {
    const [low, high] = picture.ranges[j];
    context.fillStyle = COLOURS.soft;
    context.textAlign = "right";
    for (const v of roundTicks(low, high, box.h / 40)) {
      const at = box.y + box.h - ((v - low) / (high - low)) * box.h;
      if (at > box.y + 6 && at < box.y + box.h - 4) context.fillText(tickText(v), box.x - 5, at + 4);
    }
    context.save();
    context.translate(11, box.y + box.h / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillStyle = COLOURS.ink;
    context.fillText(this.short(context, named(picture.variables[j]), box.h), 0, 0);
    context.restore();
  }

  short(context, words, room) {
    if (context.measureText(words).width <= room) return words;
    let kept = words;
    while (kept.length > 1 && context.measureText(`${kept}…`).width > room) kept = kept.slice(0, -1);
    return `${kept}…`;
  }
}
