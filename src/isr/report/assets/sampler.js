// Draws in workers, so that the page never waits: a long model is shared out among several.

function joined(arrays) {
  if (arrays.length === 1) return arrays[0];
  const whole = new Float64Array(arrays.reduce((sum, array) => sum + array.length, 0));
  let at = 0;
  for (const array of arrays) {
    whole.set(array, at);
    at += array.length;
  }
  return whole;
}

// Two sorted arrays as one.
function merged(a, b) {
  const whole = new Float64Array(a.length + b.length);
  for (let i = 0, j = 0, k = 0; k < whole.length; k++) {
    whole[k] = j >= b.length || (i < a.length && a[i] <= b[j]) ? a[i++] : b[j++];
  }
  return whole;
}

class Sampler {
  constructor(source, nX) {
    const url = URL.createObjectURL(new Blob([source, "\n", DATA.worker], { type: "text/javascript" }));
    const cores = navigator.hardwareConcurrency || 2;
    const n = source.length < 60000 ? 1 : Math.max(1, Math.min(4, cores));
    this.nX = nX;
    this.waiting = new Map();
    this.next = 0;
    this.workers = Array.from({ length: n }, () => {
      const worker = new Worker(url);
      worker.onmessage = ({ data }) => {
        const { resolve, reject } = this.waiting.get(data.id);
        this.waiting.delete(data.id);
        if (data.error) reject(new Error(data.error));
        else resolve(data.answer);
      };
      worker.onerror = (event) => {
        for (const { reject } of this.waiting.values()) reject(new Error(event.message || "the worker failed"));
        this.waiting.clear();
      };
      return worker;
    });
  }

  ask(job, details, worker = 0) {
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.workers[worker].postMessage({ id, job, ...details });
    });
  }

  // Each worker draws its share from its own seed; together they are n rows.
  shares(n) {
    const k = this.workers.length;
    return this.workers.map((_, i) => Math.floor(((i + 1) * n) / k) - Math.floor((i * n) / k));
  }

  async draw(n, seed, y) {
    const shares = this.shares(n);
    const parts = await Promise.all(
      shares.map((share, i) => this.ask("draw", { n: share, seed: seed * 16 + i, y }, i)),
    );
    return {
      x: joined(parts.map((part) => part.x)),
      columns: Array.from({ length: this.nX }, (_, i) => parts.map((part) => part.columns[i]).reduce(merged)),
      n,
      ms: Math.max(...parts.map((part) => part.ms)),
    };
  }

  // The noise behind draw(n, seed, ...), row after row.
  async noise(n, seed) {
    const parts = await Promise.all(
      this.shares(n).map((share, i) => this.ask("noise", { n: share, seed: seed * 16 + i }, i)),
    );
    return parts.flatMap((part) => [...part.noise]);
  }
}
