// The explorer: controls for an observation (or a latent), the rows it leads to, and what they say.

const SLIDERS_SHOWN = 8;
const VARIABLES_SHOWN = 5;
// While a control moves, draws should take no longer than this (ms); a slow machine gets fewer until it rests.
const PATIENCE = 16;

// How the densest point is sought: in full as isr/posterior/maximum.py does, and while a control moves.
const FULL_SEARCH = { points: 2048, densest: 4, first: 12, budget: 200 };
const LIVE_SEARCH = { points: 256, densest: 2, first: 2, budget: 10 };

class Explorer {
  constructor(spec, source) {
    this.spec = spec;
    this.d = spec.x.length;
    this.sampler = new Sampler(source, this.d);
    this.controls = spec.kind === "posterior" ? spec.y : Array.from({ length: spec.nLatent }, (_, i) => ({
      name: `z${i + 1}`, unit: "", low: -3, high: 3, value: 0,
    }));
    this.values = this.controls.map((control) => control.value);
    this.n = spec.n;
    this.seed = 1;
    this.truth = null;
    this.zoomed = false;
    this.chosen = spec.x.map((_, i) => i).slice(0, VARIABLES_SHOWN);
    this.corner = new Corner(byId("corner"));
    this.priors = new Map();
    [this.wanted, this.done, this.frames] = [1, 0, []];
    this.arm = spec.scene ? new Arm(spec.scene, (across, up) => this.aim(across, up)) : null;
    this.buildControls();
    this.buildTable();
    this.buildOptions();
    redraws.push(() => this.paint());
    for (const canvas of [byId("corner"), byId("arm")].filter(Boolean)) watchWidth(canvas, () => this.paint());
  }

  // Controls ------------------------------------------------------------------------------------------------

  buildControls() {
    this.fields = this.controls.map((control, i) => {
      const label = element("label", { id: `control-${i}`, for: `field-${i}` }, named(control));
      const range = { min: control.low, max: control.high, step: "any" };
      const slider = element("input", { type: "range", id: `slider-${i}`, "aria-labelledby": `control-${i}`, ...range });
      const field = element("input", { type: "number", id: `field-${i}`, step: "any" });
      slider.addEventListener("input", () => this.set(i, Number(slider.value), slider));
      // Keys move by a hundredth of the range: step="any" lets every value be dragged to, but steps are coarse.
      slider.addEventListener("keydown", (event) => {
        const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
        if (!way) return;
        event.preventDefault();
        const moved = this.values[i] + (way * (control.high - control.low)) / 100;
        this.set(i, Math.min(control.high, Math.max(control.low, moved)));
      });
      field.addEventListener("input", () => {
        if (field.value !== "" && Number.isFinite(Number(field.value))) this.set(i, Number(field.value), field);
      });
      const row = element("div", { class: "control" }, label, field, slider);
      byId(i < SLIDERS_SHOWN ? "controls" : "more-controls").append(row);
      return { slider, field };
    });
    byId("more").hidden = this.controls.length <= SLIDERS_SHOWN;
    this.showValues();
  }

  showValues(except) {
    this.fields.forEach(({ slider, field }, i) => {
      const control = this.controls[i];
      if (slider !== except) slider.value = this.values[i];
      if (field !== except) field.value = Number(this.values[i].toPrecision(6));
      slider.setAttribute("aria-valuetext", shown(this.values[i], (control.high - control.low) / 10));
    });
    if (this.arm) this.arm.place(this.values);
  }

  set(i, value, from) {
    this.values[i] = value;
    this.changed(from);
  }

  setAll(values, truth = null) {
    this.values = [...values];
    this.truth = truth;
    this.changed(null, true);
  }

  aim(across, up) {
    const [vertical, horizontal] = this.spec.scene.y;
    this.values[vertical] = up;
    this.values[horizontal] = across;
    this.changed();
  }

  changed(from, keepTruth = false) {
    if (!keepTruth) this.truth = null;
    this.showValues(from);
    this.request();
  }

  buildOptions() {
    byId("draws").addEventListener("change", (event) => {
      this.n = Number(event.target.value);
      this.request();
    });
    byId("again").addEventListener("click", () => {
      this.seed++;
      this.request();
    });
    byId("zoom").addEventListener("change", (event) => {
      this.zoomed = event.target.checked;
      this.paint();
    });
    byId("save").addEventListener("click", () => this.save());
    const { rows } = this.spec;
    if (rows && rows.y) {
      byId("row").hidden = byId("truth-key").hidden = false;
      let next = 0;
      byId("row").addEventListener("click", () => {
        const k = next++ % rows.y.length;
        this.setAll(rows.y[k], rows.x[k]);
      });
    }
    if (this.d > VARIABLES_SHOWN) this.buildPicker();
  }

  buildPicker() {
    byId("picker").hidden = false;
    this.spec.x.forEach((variable, i) => {
      const box = element("input", { type: "checkbox", id: `pick-${i}` });
      box.checked = this.chosen.includes(i);
      box.addEventListener("change", () => {
        this.chosen = this.spec.x.map((_, k) => k).filter((k) => byId(`pick-${k}`).checked).slice(0, 7);
        this.paint();
      });
      byId("picker").append(element("label", { for: `pick-${i}` }, box, ` ${named(variable)}`));
    });
  }

  buildTable() {
    const body = byId("summary-body");
    this.cells = this.spec.x.map((variable) => {
      const cells = ["mode", "median", "half", "most", "truth"].map((name) => element("td", { "data-figure": name }));
      body.append(element("tr", {}, element("th", { scope: "row" }, named(variable)), ...cells));
      return cells;
    });
  }

  // Drawing ---------------------------------------------------------------------------------------------------

  get observation() {
    return this.spec.kind === "posterior" ? Float64Array.from(this.values) : undefined;
  }

  request() {
    this.wanted++;
    this.touched = performance.now();
    this.pump();
  }

  get affordable() {
    if (!this.pace || performance.now() - this.touched > 200) return this.n;
    return Math.min(this.n, Math.max(500, 250 * Math.floor(PATIENCE / this.pace / 250)));
  }

  // One set of draws at a time, always for the newest values; the picture is painted while the next is drawn.
  async pump() {
    if (this.running) return;
    this.running = true;
    try {
      while (this.done !== this.wanted) {
        const ticket = this.wanted;
        const n = this.done ? this.affordable : this.n;
        const draws = await this.sampler.draw(n, this.seed, this.observation);
        draws.mode = await this.modeOf(this.observation, LIVE_SEARCH);
        this.pace = 0.7 * (this.pace || draws.ms / n) + (0.3 * draws.ms) / n;
        if (this.spec.kind === "samples") draws.point = await this.pointOf();
        draws.y = this.observation;
        this.done = ticket;
        this.take(draws);
      }
      await this.settle();
    } catch (error) {
      byId("timing").textContent = `The samples could not be drawn here: ${error.message}`;
    }
    this.running = false;
    if (this.done !== this.wanted) this.pump();
  }

  async modeOf(y, effort) {
    const { mode } = await this.sampler.ask("mode", { y, search: this.spec.search, effort });
    return mode;
  }

  async pointOf() {
    const { point } = await this.sampler.ask("point", { noise: Float64Array.from(this.values) });
    byId("density").textContent = `log-density ${point.density.toFixed(3).replace("-", "−")}`;
    return point.x;
  }

  // Once the hand rests the draws are completed and the mode is climbed to the end.
  async settle() {
    const ticket = this.wanted;
    if (this.draws.n < this.n) {
      await new Promise((resolve) => setTimeout(resolve, 120));
      if (ticket !== this.wanted) return;
      const draws = await this.sampler.draw(this.n, this.seed, this.draws.y);
      this.take({ ...draws, y: this.draws.y, point: this.draws.point, mode: this.draws.mode });
    }
    const { draws } = this;
    const mode = await this.modeOf(draws.y, FULL_SEARCH);
    if (ticket !== this.wanted) return;
    draws.mode = mode;
    this.settled = this.done;
    this.paintSoon();
    // The first draws waited for the browser's compiler; a second set shows what draws really take.
    if (this.settled === 1) this.request();
  }

  take(draws) {
    this.draws = draws;
    this.summary = summaryOf(draws.columns);
    this.paintSoon();
  }

  paintSoon() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame((now) => {
      this.scheduled = false;
      this.paint();
      this.frames = [...this.frames.filter((t) => t > now - 1000), now];
    });
  }

  paint() {
    if (!this.draws) return;
    const { x, n, ms } = this.draws, mode = this.draws.mode.x;
    const ranges = this.spec.x.map((v, i) => (this.zoomed ? this.around(i) : [v.low, v.high]));
    const isPosterior = this.spec.kind === "posterior";
    const picture = {
      variables: this.spec.x, ranges, bounds: this.spec.search.bounds, x, n, summary: this.summary, shown: this.chosen,
      mode: isPosterior ? mode : null, truth: this.truth, point: this.draws.point || null,
      prior: this.spec.rows && !this.zoomed ? (i, low, high) => this.prior(i, low, high) : null,
    };
    this.corner.draw(picture);
    if (this.arm) this.arm.draw({ x, n, mode, truth: this.truth });
    this.fillTable(mode);
    const { note } = this.draws.mode, words = note && `No densest point: ${note}.`;
    if (byId("map-note").textContent !== words) byId("map-note").textContent = words;
    this.warn();
    byId("timing").textContent = `${n.toLocaleString("en")} draws in ${ms.toFixed(1)} ms`;
    this.announce();
  }

  around(i) {
    const { low, high, wide } = this.summary[i];
    const room = 0.08 * (high - low) || wide || 1;
    return [low - room, high + room];
  }

  prior(i, low, high) {
    if (!this.priors.has(i)) {
      const column = Float64Array.from(this.spec.rows.prior[i].filter((v) => v !== null));
      const sorted = Float64Array.from(column).sort();
      const wide = (quantile(sorted, 0.75) - quantile(sorted, 0.25)) / 1.349;
      const sigma = 0.9 * wide * column.length ** -0.2;
      this.priors.set(i, densityAlong(column, column.length, 1, 0, low, high, LINE_BINS, sigma));
    }
    return this.priors.get(i);
  }

  fillTable(mode) {
    const { point } = this.draws;
    this.summary.forEach((s, i) => {
      const figure = (v) => shown(v, s.sd);
      const fifth = this.truth || point;
      const words = [
        mode ? figure(mode[i]) : "–", figure(s.q50), `${figure(s.q25)} … ${figure(s.q75)}`,
        `${figure(s.q05)} … ${figure(s.q95)}`, fifth ? figure(fifth[i]) : "",
      ];
      words.forEach((word, k) => {
        if (this.cells[i][k].textContent !== word) this.cells[i][k].textContent = word;
      });
    });
  }

  warn() {
    const { training, y } = this.spec;
    const words = training && this.draws.y ? unlikeness(training, [...this.draws.y], y) : "";
    if (byId("unlike").textContent !== words) byId("unlike").textContent = words;
  }

  // Readers of the screen hear the outcome once the hand rests.
  announce() {
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => {
      byId("spoken").textContent = this.spec.x
        .map((v, i) => `${v.name}: median ${shown(this.summary[i].q50, this.summary[i].sd)}`)
        .join(", ");
    }, 700);
  }

  save() {
    const quoted = (name) => `"${name.replaceAll('"', '""')}"`;
    const lines = [this.spec.x.map((v) => quoted(v.name)).join(",")];
    const { x, n } = this.draws;
    for (let k = 0; k < n; k++) lines.push(x.subarray(k * this.d, (k + 1) * this.d).join(","));
    const url = URL.createObjectURL(new Blob([lines.join("\n"), "\n"], { type: "text/csv" }));
    element("a", { href: url, download: "draws.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
}

setUpTheme();
setUpFolds();
setUpMathematics();
setUpCopying();
setUpFront();
window.isrReport = { data: DATA, explorer: null, shown, densityAlong };
if (DATA.explorer) {
  byId("explorer").hidden = false;
  unpack(DATA.explorer.source).then((source) => {
    window.isrReport.explorer = new Explorer(DATA.explorer, source);
    window.isrReport.explorer.pump();
  }).catch((error) => {
    byId("timing").textContent = `The explorer cannot run here: ${error.message}`;
  });
}
