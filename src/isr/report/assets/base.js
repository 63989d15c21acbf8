// What the other scripts share: the page's data, numbers as text, colours of the style sheet.

const DATA = JSON.parse(document.getElementById("isr-data").textContent);
const byId = (id) => document.getElementById(id);

async function unpack(packed) {
  if (packed.text !== undefined) return packed.text;
  const bytes = Uint8Array.from(atob(packed.deflate), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// A number as people write it: 80, 0.0012, 1.23·10⁻⁹.
function plain(value, digits = 6) {
  const size = Math.abs(value);
  if (!size || (size >= 1e-4 && size < 1e7)) return String(Number(value.toPrecision(digits))).replace("-", "−");
  const [mantissa, power] = value.toExponential(3).split("e");
  const raised = [...String(Number(power))].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");
  return `${Number(mantissa)}·10${raised}`.replace("-", "−");
}

// A number to as many decimals as its spread makes meaningful.
function shown(value, spread) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.floor(Math.log10(spread > 0 ? spread : Math.abs(value) || 1));
  const decimals = 2 - size;
  if (decimals > 8 || size > 6) return plain(value);
  return value.toFixed(Math.max(0, decimals)).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
}

const named = (variable) => (variable.unit ? `${variable.name} (${variable.unit})` : variable.name);

const COLOURS = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "soft", "line", "ground", "card", "one", "two", "three", "prior"]) {
    COLOURS[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

// Anything drawn on a canvas has to be drawn again when the colours or the width change.
const redraws = [];
function redrawAll() {
  readColours();
  for (const redraw of redraws) redraw();
}

// Keeps a canvas's width at hand: to ask for it in every frame would have the page laid out twice.
function watchWidth(canvas, redraw) {
  canvas.shownWidth = canvas.clientWidth;
  new ResizeObserver(() => {
    if (canvas.shownWidth === canvas.clientWidth) return;
    canvas.shownWidth = canvas.clientWidth;
    redraw();
  }).observe(canvas);
}

// Returns the context of a canvas whose pixels are those of the screen, and its size in CSS pixels.
function fitted(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function roundTicks(low, high, n) {
  const rough = (high - low) / Math.max(1, n);
  if (!(rough > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) ticks.push(k * step);
  return ticks;
}

const tickText = (value) => String(Number(value.toPrecision(6)) || 0).replace("-", "−");
