"""The work of one frame of the report's live explorer, for the demonstration's arm and models of the paper's size.

    python benchmarks/report_explorer.py [--quick] [--out rows.jsonl] [--model demo/arm.isr]

A frame draws 5,000 samples for an observation that moved, and paints them: marginals, pairs, table and arms. Sixty
frames a second leave 16.7 ms for it. Each part is timed inside Chromium by ``performance.now``, and the best and the
median of many frames are given; where Linux tells, also the processor time of all of Chromium a frame (``_cpu_ms``),
which other programs on the same machine disturb less:

- ``draw``: samples, their order and the climb to the mode, in one worker, however many the page would use;
- ``paint``: what the page's own thread does, with the drawing finished by reading a pixel back;
- ``frame``: the sum of the two figures, as on one core. On two they overlap, and the slower one counts.

``pictures_per_second`` is what the screen showed while the target moved without a pause, workers and all. The browser
has no graphics card here, so painting and showing cost more than on a desk. Beside it, as a baseline, the time JAX
takes for the same draws. Needs playwright and Chromium. Weights are random unless a saved model is given: what counts
is how many there are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isr import demo
from isr.bijections.affine import Standardise
from isr.bijections.build import Architecture, build_flow
from isr.bijections.flow import Flow
from isr.bijections.networks import EQL
from isr.bijections.parameters import flatten, n_constants
from isr.paper import records
from isr.problems import kinematics
from isr.report import write_report
from isr.storage import Bundle, load

N_DRAWS = 5000
DEMO = Architecture(n_blocks=4, n_layers=2, library=demo.LIBRARY, mixing="linear")
PAPER = Architecture(n_blocks=6, n_layers=3)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

MOVED = """(k) => {
  const e = isrReport.explorer, spans = e.controls.map((c) => c.high - c.low);
  return Float64Array.from(e.home, (v, i) => v + 0.15 * spans[i] * Math.sin(0.1 * k + i));
}"""
DRAW = f"""async (n) => {{
  const e = isrReport.explorer, moved = {MOVED}, times = [];
  e.home = [...e.values];
  for (let k = 0; k < n; k++) {{
    e.drawn = await e.sampler.ask("draw", {{ n: e.n, seed: 1, y: moved(k), budget: 40 + 20 * e.d }});
    times.push(e.drawn.ms);
  }}
  return times;
}}"""
PAINT = f"""(n) => {{
  const e = isrReport.explorer, moved = {MOVED}, times = [], soon = e.paintSoon;
  const canvases = [...document.querySelectorAll("#explorer canvas")].filter((canvas) => canvas.width);
  e.paintSoon = () => {{}};
  for (let k = 0; k < n; k++) {{
    const began = performance.now();
    e.take({{ ...e.drawn, n: e.n, y: moved(k) }});
    e.paint();
    for (const canvas of canvases) canvas.getContext("2d").getImageData(0, 0, 1, 1);
    times.push(performance.now() - began);
  }}
  e.paintSoon = soon;
  return times;
}}"""

SWEEP = """async (seconds) => {
  const e = isrReport.explorer, start = [...e.values], spans = e.controls.map((c) => c.high - c.low);
  const drawn = [], take = e.take.bind(e), paint = e.paint.bind(e);
  let painted = 0;
  e.take = (draws) => { drawn.push(draws.n); take(draws); };
  e.paint = () => { painted++; paint(); };
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
  Object.assign(e, { take, paint });
  return { pictures_per_second: painted / seconds, draws_each: drawn.sort((a, b) => a - b)[drawn.length >> 1],
    workers: e.sampler.workers.length };
}"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the pruned model for a few frames")
    parser.add_argument("--out", type=Path, help="append the rows to this file")
    parser.add_argument("--model", type=Path, help="the demonstration's arm as saved; random weights without")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    models = arms(arguments.seed, arguments.model)
    for name in ["demo, three in ten weights"] if arguments.quick else models:
        row = measure(models[name](), arguments.seed, n_frames=20 if arguments.quick else 150)
        found = {
            "benchmark": "report_explorer", "model": name, "seed": arguments.seed,
            "load": round(os.getloadavg()[0], 2), **row,
        }  # fmt: skip
        print(json.dumps({**found, **records.provenance()}), flush=True)
        if arguments.out:
            records.append(arguments.out, found)


def arms(seed: int, saved: Path | None) -> dict[str, Callable[[], Flow]]:
    """Return the models of the arm by name, each to be made when it is measured."""

    def demonstration() -> Flow:
        return arm(DEMO, seed) if saved is None else load(saved).flow

    return {
        "demo, three in ten weights": lambda: cut(demonstration(), 0.3),
        "demo": demonstration,
        "paper's size, one in ten weights": lambda: cut(arm(PAPER, seed), 0.1),
        "paper's size, three in ten weights": lambda: cut(arm(PAPER, seed), 0.3),
        "paper's size": lambda: arm(PAPER, seed),
    }


def arm(shape: Architecture, seed: int) -> Flow:
    """Return a conditional flow for the arm with random weights."""
    return build_flow(
        jax.random.key(seed),
        4,
        condition_dim=2,
        architecture=shape,
        standardise=Standardise((0.0,) * 4, kinematics.PRIOR_STD),
        standardise_condition=Standardise((0.0, 1.7), (0.8, 0.3)),
    )


def cut(flow: Flow, share: float) -> Flow:
    """Return a flow with so many of its networks' weights, picked at random, and zeros for the others."""
    rng = np.random.default_rng(0)

    def thinned(part: Any) -> Any:
        if not isinstance(part, EQL):
            return part
        weights, restore = flatten(part)
        return restore(jnp.where(rng.random(weights.shape[0]) < share, weights, 0.0))

    return jax.tree.map(thinned, flow, is_leaf=lambda part: isinstance(part, EQL))


def measure(flow: Flow, seed: int, n_frames: int) -> dict:
    """Return what the browser and JAX take for a model."""
    rows = kinematics.sample(1000, random_state=seed)
    with tempfile.TemporaryDirectory() as folder:
        page = write_report(
            Bundle(flow, kinematics.X_NAMES, kinematics.Y_NAMES), Path(folder) / "report.html", data=rows, checks=False
        )  # fmt: skip
        row = {"n_constants": n_constants(flow), "page_kb": round(page.stat().st_size / 1000)}
        return row | in_browser(page, n_frames) | {"jax_draw_ms": round(by_jax(flow), 2)}


def in_browser(page: Path, n_frames: int) -> dict:
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
        shown = tab.evaluate(SWEEP, min(8, n_frames / 10))
        found = timed("draw", tab, DRAW, n_frames) | timed("paint", tab, PAINT, n_frames)
        browser.close()
    for figure in ("ms", "ms_best", "cpu_ms"):
        if f"draw_{figure}" in found:
            found[f"frame_{figure}"] = round(found[f"draw_{figure}"] + found[f"paint_{figure}"], 2)
    return found | {name: round(value, 2) for name, value in shown.items()}


def timed(part: str, tab: Any, script: str, n: int) -> dict:
    """Return what a part of a frame takes: the best and the median of n, and the mean of its processor time."""
    tab.evaluate(script, 10)
    before = processor_seconds()
    times = tab.evaluate(script, n)
    after = processor_seconds()
    found = {f"{part}_ms": round(float(np.median(times)), 2), f"{part}_ms_best": round(min(times), 2)}
    if before is not None and after is not None:
        found[f"{part}_cpu_ms"] = round(1e3 * (after - before) / n, 2)
    return found


def processor_seconds() -> float | None:
    """Return the processor time that all threads of the browsers started here have had, None where Linux has no say."""
    if not Path("/proc/self/schedstat").exists():
        return None
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    total = 0
    for process in parents:
        with contextlib.suppress(OSError):
            if _is_below(process, parents) and b"chrom" in Path(f"/proc/{process}/cmdline").read_bytes():
                threads = Path(f"/proc/{process}/task").glob("*/schedstat")
                total += sum(int(thread.read_text().split()[0]) for thread in threads)
    return total / 1e9


def _is_below(process: int, parents: dict[int, int]) -> bool:
    while process in parents and process != os.getpid():
        process = parents[process]
    return process == os.getpid()


def by_jax(flow: Flow) -> float:
    """Return the median time of ``flow.sample``, compiled, in milliseconds."""
    times = []
    for k in range(10):
        began = time.perf_counter()
        flow.sample(jax.random.key(k), N_DRAWS, np.array(kinematics.TARGET))
        times.append(1e3 * (time.perf_counter() - began))
    return float(np.median(times))


if __name__ == "__main__":
    main()
