"""Frames a second of the report's live explorer, for a dense and two sparse models of the planar arm.

    python benchmarks/report_explorer.py [--quick] [--out rows.jsonl]

Writes one JSON row a model: commit, machine, load, seed, size of the page, and from Chromium, while the target moves
without a pause: pictures a second, draws behind each (5,000 unless the machine is too slow for them), milliseconds to
draw all 5,000 in one worker and to paint. Beside it, as a baseline, the milliseconds JAX takes for the same draws. The
browser has no graphics card here, so that painting costs more than on a desk. Needs playwright and Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from isr.model.affine import Standardise
from isr.model.build import Architecture, build_flow
from isr.model.flow import Flow
from isr.model.parameters import flatten, n_constants
from isr.problems import kinematics
from isr.report import write_report
from isr.storage import Bundle

N_DRAWS = 5000
SHARES = {"dense": 1.0, "three in ten weights": 0.3, "one in ten weights": 0.1}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

SWEEP = """async (seconds) => {
  const e = isrReport.explorer, start = [...e.values], spans = e.controls.map((c) => c.high - c.low);
  const drawn = [], painted = [], take = e.take.bind(e), paint = e.paint.bind(e);
  e.take = (draws) => { drawn.push(draws.n); take(draws); };
  e.paint = () => { const began = performance.now(); paint(); painted.push(performance.now() - began); };
  const began = performance.now();
  await new Promise((resolve) => {
    const step = () => {
      const t = (performance.now() - began) / 1000;
      if (t > seconds) return resolve();
      e.setAll(start.map((v, i) => v + 0.15 * spans[i] * Math.sin(2 * t + i)));
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  });
  const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];
  const pictures = painted.length / seconds;
  Object.assign(e, { take, paint });
  const alone = [];
  for (let k = 0; k < 15; k++) {
    alone.push((await e.sampler.ask("draw", { n: e.n, seed: 1, y: e.observation, budget: 0 })).ms);
  }
  return { pictures_per_second: pictures, draws_each: middle(drawn), paint_ms: middle(painted),
    draw_ms_one_worker: middle(alone), fastest_draw_ms: Math.min(...alone), workers: e.sampler.workers.length };
}"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the sparsest model for two seconds")
    parser.add_argument("--out", type=Path, help="append the rows to this file")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    common = {
        "benchmark": "report_explorer",
        "commit": _commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "seed": arguments.seed,
    }
    shares = {"one in ten weights": 0.1} if arguments.quick else SHARES
    for name, share in shares.items():
        row = measure(share, arguments.seed, seconds=2 if arguments.quick else 8)
        line = json.dumps({**common, "load": round(os.getloadavg()[0], 2), "model": name, **row})
        print(line, flush=True)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.write(line + "\n")


def measure(share: float, seed: int, seconds: float) -> dict:
    """Return what the browser and JAX take for a model with this share of its weights."""
    flow = arm(share, seed)
    bundle = Bundle(flow, kinematics.X_NAMES, kinematics.Y_NAMES)
    rows = kinematics.sample(1000, random_state=seed)
    with tempfile.TemporaryDirectory() as folder:
        page = write_report(bundle, Path(folder) / "report.html", data=rows, checks=False)
        row = {"n_constants": n_constants(flow), "page_kb": round(page.stat().st_size / 1000)}
        return row | in_browser(page, seconds) | {"jax_draw_ms": round(by_jax(flow), 2)}


def arm(share: float, seed: int) -> Flow:
    """Return a conditional flow of the paper's size for the arm, with random weights, some of them cut."""
    flow = build_flow(
        jax.random.key(seed),
        4,
        condition_dim=2,
        architecture=Architecture(n_blocks=6, n_layers=3),
        standardise=Standardise((0.0,) * 4, kinematics.PRIOR_STD),
        standardise_condition=Standardise((0.0, 1.7), (0.8, 0.3)),
    )
    weights, restore = flatten(flow)
    kept = np.random.default_rng(seed).random(weights.shape[0]) < share
    return restore(jnp.where(kept, weights, 0.0))


def in_browser(page: Path, seconds: float) -> dict:
    """Return the figures of a page in Chromium, or why there are none."""
    program = next((path for path in map(shutil.which, BROWSERS) if path), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {"failure": "playwright is not installed"}
    if program is None:
        return {"failure": "no Chromium on PATH"}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.goto(page.as_uri())
        end = time.monotonic() + 60
        while not tab.evaluate("Boolean(isrReport.explorer && isrReport.explorer.settled >= 2)"):
            if time.monotonic() > end:
                return {"failure": "the explorer did not start within a minute"}
            time.sleep(0.1)
        tab.evaluate("document.getElementById('explorer').scrollIntoView()")
        tab.evaluate(SWEEP, 1)
        found = tab.evaluate(SWEEP, seconds)
        browser.close()
    return {name: round(value, 2) for name, value in found.items()}


def by_jax(flow: Flow) -> float:
    """Return the median time of ``flow.sample``, compiled, in milliseconds."""
    times = []
    for k in range(10):
        began = time.perf_counter()
        flow.sample(jax.random.key(k), N_DRAWS, np.array(kinematics.TARGET))
        times.append(1e3 * (time.perf_counter() - began))
    return float(np.median(times))


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
