"""The sections of the page of benchmarks: for each a sentence, tables from its rows, and a figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import figures
from fronts import constants, equal_time
from law_tables import laws
from sbibm_tables import draw_sbibm, sbibm
from tables import table
from targets import matching, number

Row = dict[str, Any]
# Relative error on a wider range below which two formulas are one.
SAME = 1e-6
PASSES = "rows, one pass"


class Section(NamedTuple):
    """A part of the page.

    Args:
        title: Heading.
        benchmarks: Whose rows it shows.
        text: What is measured, in a few sentences.
        body: Makes the tables.
        draw: Draws the figure and says whether there was anything to draw; None for none.
    """

    title: str
    benchmarks: tuple[str, ...]
    text: str
    body: Callable[[list[Row]], str]
    draw: Callable[[list[Row], Path], bool] | None = None


def outrun(times: dict[str, float | None], ours: str, what: str) -> str:
    """Return a sentence naming the flows that are faster than ``ours``, so that no loss hides in a table."""
    own = times.get(ours)
    faster = [
        f"{name} ({t:.3g} against {own:.3g})"
        for name, t in times.items()
        if own is not None and t is not None and t < own and not name.startswith("isr")
    ]
    return f"Faster than {ours} in {what}: {', '.join(faster)}." if faster else ""


def training(rows: list[Row]) -> str:
    """Steps by flow, with isr's advantage; compilation; whole fits."""
    lines: list[list[Any]] = []
    steps = matching(rows, part="step")
    for name, variant, cores in dict.fromkeys((r["flow"], r.get("variant"), r["cores"]) for r in steps):
        mine = matching(steps, flow=name, variant=variant, cores=cores)
        # On several cores what counts is how soon a step is done, not how much time all of them spent on it.
        field = "cpu_ms_best" if cores == 1 else "wall_ms_best"
        times = [number(mine, field, batch_size=batch) for batch in (100, 1000)]
        ours = [
            number(steps, field, flow="isr cISR", variant=None, cores=cores, batch_size=b)
            for b in (100, 1000)
        ]
        ratios = [None if t is None or o is None else t / o for t, o in zip(times, ours, strict=True)]
        label = name if variant is None else f"{name}, {variant}"
        compiled = max((r["compile_cpu_seconds"] for r in mine if "compile_cpu_seconds" in r), default=None)
        lines.append(
            [label, cores, mine[0]["n_parameters"], times[0], ratios[0], times[1], ratios[1], compiled]
        )
    heads = ["flow", "cores", "parameters", "ms a step, batch 100", "over isr's cISR", "ms a step, batch 1,000",
             "over isr's cISR", "s to compile"]  # fmt: skip
    parts = [table(heads, sorted(lines, key=lambda line: (line[1], line[3] or np.inf)))]
    for own in ("isr cISR", "isr cINN"):
        for column, batch in ((3, "100"), (5, "1,000")):
            alone = {line[0]: line[column] for line in lines if line[1] == 1}
            parts.append(outrun(alone, own, f"steps of {batch} rows, ms"))
    compiled = matching(rows, part="compile")
    if compiled:
        parts.append(
            "First call of isr's training program, backward term included, in a new process: "
            + "; ".join(f"{r['mixing']}, cache {r['cache']}: {r['compile_cpu_seconds']:.1f} s" for r in compiled) + "."
        )  # fmt: skip
    fits = matching(rows, part="fit")
    if fits:
        heads = ["whole fit", "rows", "epochs", "s, compilation included", "held-out loss (nats)"]
        parts.append(
            table(
                heads,
                [
                    [r["flow"], r["n_rows"], r["n_epochs"], r["fit_cpu_seconds"], r["held_out_nats"]]
                    for r in fits
                ],
            )
        )
    return "\n\n".join(part for part in parts if part)


def limit(rows: list[Row]) -> str:
    """The bound, its parts, and the measured step."""
    heads = ["flow", "batch", "arithmetic (ms)", "functions (ms)", "optimiser (ms)", "bound (ms)", "measured (ms)",
             "times the bound", "kernels a step", "peak (GFLOP/s)"]  # fmt: skip
    fields = ("flow", "batch_size", "arithmetic_ms", "functions_ms", "optimiser_ms", "bound_ms", "cpu_ms_best",
              "times_bound", "n_kernels", "gemm_gflops")  # fmt: skip
    return table(heads, [[r[f] for f in fields] for r in matching(rows)])


def restarts(rows: list[Row]) -> str:
    """Steps and fits, alone and together."""
    steps = [
        [r["model"], r["cores"], r["alone_cpu_ms"], r["cpu_ms"], r["times_faster"]]
        for r in matching(rows, part="steps")
    ]
    fits = []
    for r in matching(rows, part="fits"):
        kind, ratio = ("cpu_seconds", "times_faster") if r["cores"] == 1 else ("seconds", "times_faster_wall")
        fits.append([r["model"], r["cores"], 32 * r[f"alone_{kind}"], r[f"together_{kind}"], r[ratio]])
    heads = ["model", "cores", "ms a step, alone", "ms a step and restart, 32 together", "times faster"]
    whole = ["model", "cores", "s for 32 fits, one by one", "s for one fit of 32", "times faster"]
    return "\n\n".join(table(h, lines) for h, lines in ((heads, steps), (whole, fits)) if lines)


def sampling(rows: list[Row]) -> str:
    """Draws and densities a million."""
    lines: list[list[Any]] = []
    for name, cores in dict.fromkeys((r["flow"], r["cores"]) for r in matching(rows)):
        mine = matching(rows, flow=name, cores=cores)
        times = [number(mine, "million_cpu_seconds", what=what) for what in ("sample", "log_prob")]
        lines.append([name, cores, mine[0]["n_parameters"], *times])
    heads = ["flow", "cores", "parameters", "s for a million draws", "s for a million log-densities"]
    parts = [table(heads, sorted(lines, key=lambda line: (line[1], line[3] or np.inf)))]
    for own in ("isr cISR, single precision", "isr cINN, single precision"):
        for column, what in ((3, "draws"), (4, "log-densities")):
            alone = {line[0]: line[column] for line in lines if line[1] == 1}
            parts.append(outrun(alone, own, f"a million {what}, s"))
    return "\n\n".join(part for part in parts if part)


def symbolic(rows: list[Row]) -> str:
    """How often each method was exact, and its errors and times."""
    lines = []
    tried = [r for r in rows if "formula" in r]
    for family, method in dict.fromkeys((r["family"], r["method"]) for r in tried):
        mine = [r for r in tried if (r["family"], r["method"]) == (family, method)]
        fine = matching(mine)
        median = {
            f: float(np.median(np.nan_to_num([r[f] for r in fine], nan=np.inf))) if fine else None
            for f in ("error", "fit_cpu_seconds", "n_operations")
        }
        exact = f"{sum(_is_exact(r) for r in fine)} of {len(mine)}"
        lines.append(
            [family, method, exact, median["error"], median["n_operations"], median["fit_cpu_seconds"]]
        )
    heads = ["formulas", "method", "exact", "median error", "median operations", "median s a formula"]
    names = sorted({(r["family"], r["formula"]) for r in tried})
    methods = list(dict.fromkeys(r["method"] for r in tried))

    def verdict(family: str, formula: str, method: str) -> str:
        found = [r for r in tried if (r["family"], r["formula"], r["method"]) == (family, formula, method)]
        if not found:
            return ""
        return (
            "failed"
            if "failure" in found[-1]
            else "exact"
            if _is_exact(found[-1])
            else f"{found[-1]['error']:.1e}"
        )

    each = [[formula, *(verdict(family, formula, m) for m in methods)] for family, formula in names]
    return f"{table(heads, lines)}\n\nEach formula, with the error where it is not exact:\n\n" + table(
        ["formula", *methods], each
    )


def _is_exact(row: Row) -> bool:
    """Whether a formula is the true one: by its terms, or written otherwise with the same values far outside."""
    return row["exact"] or row["error"] < SAME


def posthoc(rows: list[Row]) -> str:
    """Errors before and after the functions of a network are replaced by equations."""
    heads = ["law", "equations", "exact", "KL as a network", "KL of the equations", "operations", "s"]
    fields = ("kl_before", "kl", "n_operations", "fit_cpu_seconds")
    return table(
        heads,
        [
            [
                r["problem"].replace("_", " "),
                r["method"],
                "yes" if r["exact"] else "no",
                *(r.get(f) for f in fields),
            ]
            for r in matching(rows)
        ],
    )


def growth(rows: list[Row]) -> str:
    """Sizes, times and memory, with fitted exponents."""
    parts = []
    for along in dict.fromkeys(r["along"] for r in matching(rows)):
        mine = sorted(matching(rows, along=along), key=lambda r: r["size"])
        of_fits = along.startswith("rows")
        time, unit = ("fit_cpu_seconds", "s a fit") if of_fits else ("cpu_ms", "ms a step")
        lines = [
            [r["size"], r[time], r.get("compile_cpu_seconds"), r["peak_mb"], r.get("data_mb")] for r in mine
        ]
        parts.append(table([along, unit, "s to compile", "peak memory (MB)", "data (MB)"], lines))
        sizes, times = ([float(r[f]) for r in mine] for f in ("size", time))
        if len(mine) > 1 and along == PASSES:
            slope, start = np.polyfit(sizes, times, 1)
            parts.append(f"A pass takes {1e6 * slope:.2g} s for a million rows, after {start:.1f} s.")
        elif len(mine) > 1:
            power = np.polyfit(np.log(sizes), np.log(times), 1)[0]
            parts.append(f"Time grows as {along} to the power {power:.2f} over this range.")
    return "\n\n".join(parts)


def normal_modes(rows: list[Row]) -> str:
    """Accuracy and rate of the engine, with KRAKEN's and pykrak's beside it."""
    rates = [
        ["isr", r["threads"], r["environments"], r["cpu_ms_per_environment"], r["times_kraken_per_core"]]
        for r in matching(rows, measure="rate")
    ]
    kraken = [
        [f"KRAKEN, {'measured here' if 'wall_ms_per_environment' in r else 'as measured with the reference'}", 1, None,
         r.get("wall_ms_per_environment", r["assumed_cpu_ms_per_environment"]), 1.0]
        for r in matching(rows, measure="baseline", engine="kraken")
    ]  # fmt: skip
    # A row without a mesh is another case, so that a run that had to leave pykrak out hides no measurement.
    tried = matching(rows, measure="baseline", engine="pykrak")
    pykrak = [r for r in tried if "skipped" not in r]
    rates += [
        [f"pykrak {r['peer_versions']['pykrak']} with NumPy {r['numpy']}, {r['mesh']}", r["threads"], r["environments"],
         r["cpu_ms_per_environment"], r["times_kraken_per_core"]]
        for r in pykrak
    ]  # fmt: skip
    accuracy = [
        [name, r["mesh"], r["worst_error_against_kraken"], r["worst_error_against_fine_mesh"]]
        for name, some in (("isr", matching(rows, measure="accuracy")), ("pykrak", pykrak))
        for r in some
    ]
    parts = [
        table(["engine", "threads", "environments", "ms of CPU each", "times KRAKEN a core"], rates + kraken)
    ]
    if tried and not pykrak:
        parts.append(f"pykrak is not in the table: {tried[-1]['skipped']}.")
    if accuracy:
        parts.append(table(["engine", "mesh", "worst error against KRAKEN", "against a fine mesh"], accuracy))
    return "\n\n".join(parts)


def explorer(rows: list[Row]) -> str:
    """The work of one frame of the live explorer."""
    lines = [
        [
            r.get("model"),
            r.get("n_constants"),
            r.get("draw_ms_best"),
            r.get("paint_ms_best"),
            r.get("jax_draw_ms"),
        ]
        for r in matching(rows)
    ]
    return table(["model", "constants", "draw, best (ms)", "paint, best (ms)", "JAX draws (ms)"], lines)


SECTIONS = (
    Section(
        "Training step", ("training_step",),
        "The planar arm, 4 variables given 2: six two-sided affine couplings, three hidden layers, single "
        "precision, Adam, the likelihood's gradient. cISR has the paper's library of functions, cINN networks of "
        "width 32. PyTorch eager is the same architecture written in the plain way, a network for each log-scale "
        "and shift. FrEIA, zuko, nflows and FlowJAX let one network give both, which halves their parameters. "
        "normflows' affine couplings take no condition; its conditional masked autoregression stands in. Hardly any of "
        "them gains by a second core: steps this small are done sooner than they are shared out.",
        training, figures.steps,
    ),
    Section(
        "Distance to the machine's limit", ("machine_limit",),
        "The bound is the step's arithmetic at the speed of a large matrix product on one core, plus its "
        "transcendental functions and Adam's sweep at the speed of long loops. What is above it: the gradient works "
        "a tile's values out a second time instead of keeping those of the batch, products with fewer than ten rows "
        "and columns do not reach the speed of large ones, and at batch 100 the small kernels around the couplings "
        "(shuffling, noise, the optimiser).",
        limit,
    ),
    Section(
        "Restarts", ("restarts",),
        "Thirty-two restarts in one program beside one after another, everything compiled. Fits of one shape share "
        "their programs, so that those after the first take a fraction of a second each, and the native library works "
        "as fast for one member as for many: side by side saves what a fit does around its steps, and small kernels.",
        restarts,
    ),
    Section(
        "Sampling and density", ("sampling",),
        "For one observation. The others work in single precision; isr, and the C code it writes, in double, and with "
        "`precision=\"single\"` in single as well. In double, isr's faster form begins at 131,072 rows: the quick form "
        "of this benchmark, with 100,000, does not reach it.",
        sampling, figures.sampling,
    ),
    Section(
        "Error at equal time", ("equal_time",),
        "Every flow trains for the same processor time on one core, compilation included, on the same rows, and is "
        "judged by exact posterior draws. The arm has a million rows; the 100,000 of earlier rows the cISR learned by "
        "heart (Err_post 0.0015, 0.0009 and 0.0009 after one, three and ten minutes). Exact draws themselves score an "
        "Err_post of 0.0000 ± 0.0001 with these 50 targets, and an Err_resim of 0.0002. Err_resim is a mean over all "
        "draws, none removed: one draw far off in 50,000 shows in it, and not in its median over the targets. Two "
        "moons and the mixture leave nothing to gain after a minute or three.",
        equal_time, figures.errors,
    ),
    Section(
        "Error against the number of constants", ("constants", "equal_time"),
        "The arm again, three minutes each: the flows above, and the same kinds made smaller. Networks have fewer "
        "units in a layer, the cISR half the functions and fewer blocks and layers. A flow is on the front if none "
        "with as many constants or fewer has a smaller Err_post; below 0.0001, where exact draws are too, none counts "
        "as smaller. One training each, or the mean of several: the same flow trained twice may differ by 0.0004, so "
        "that smaller differences mean little.",
        constants, figures.constants,
    ),
    Section(
        "Symbolic regression", ("symbolic",),
        "Exact means every term with its constants within 2 %, and nothing else, or a formula written otherwise whose "
        "error is below a millionth. The error is root mean square on a wider range than was seen, relative to the "
        "spread there. Every method has the functions that the formulas take. isr is also told of which kind they are: "
        "sines of 2π x for Kim's, quotients and roots for Feynman's. gplearn has the population of its documentation's "
        "example and 20 generations, and ends with the first exact program; pyoperon its default budget, a million "
        "evaluations, which it always spends, with the model chosen from its front by BIC; pykan its tutorials' steps, "
        "from the simplest shape of four on until one is exact. Its rows of Feynman's formulas are of the setup "
        "before, which gave it one shape and no products. isr's rows of Feynman's formulas were made while "
        "`EQLRegressor` still divided y by powers of its inputs first.",
        symbolic,
    ),
    Section(
        "Laws found", ("laws",),
        "1,500 rows of 63 formulas of Feynman's lectures in the ranges of Udrescu and Tegmark (2020), the 400 "
        "points of each of Strogatz's seven systems (La Cava et al. 2016) with their exact derivatives, 1,500 arms, "
        "and Kim's ten functions; *fresh* holds twenty formulas of physics and twenty of chemistry, biology, "
        "engineering and economics, written down before the search, as it then was, was run on them once; the other "
        "lists have been used to mend it. Noise is normal, in units "
        "of y's standard deviation. *Strict* means the same formula, every constant within 2 %, by numbers inside the "
        "range and far outside; *SRBench* its "
        "symbolic solution, with constants rounded to three decimals equal but for an added constant or a constant "
        "factor. R² is that of held-out rows without noise. Times are processor seconds on one core; fits share a "
        "process, so imports are not in them. Peers have about 10 s for each formula; "
        "pyoperon's model is chosen from its front by BIC. Everyone has the functions that the formulas take, as "
        "listed in `benchmarks/peers`. Where no Julia is installed PySR cannot run; published for it, by SRBench's "
        "rule on all 119 formulas with 8 hours for each: 61.3 % without noise and 54.2 % at 0.01, and on Strogatz's "
        "85.7 and 42.9 %.",
        laws,
    ),
    Section(
        "Inference: the tasks of sbibm", ("sbibm",),
        "C2ST of 10,000 draws against the reference draws that sbibm ships, by its own definition; 0.5 is perfect. All "
        "methods learn from pairs drawn from the prior, once for all observations, unless they are sequential (SNPE, "
        "SNLE, TSNPE-PFN). Published figures are the mean of ten observations.",
        sbibm, draw_sbibm,
    ),
    Section(
        "Equations trained, or fitted afterwards",
        ("posthoc",),
        "Laws of two variables, one block: `isr.SymbolicFlow` beside the same flow of networks whose functions are "
        "then replaced by equations that pyoperon finds, with its default budget for each. From its front the model is "
        "chosen by BIC, where errors that make no more of a difference than the network's own do not count. KL in nats "
        "over 20,000 fresh samples; operations are those of the latents as equations of x. The rows are of the setup "
        "before, in which pyoperon had the time that isr's own fit took.",
        posthoc,
    ),
    Section(
        "Growth", ("growth",),
        "`rows`: a fit of 2,000 steps (500 in quick form), or of as many as one pass through the rows takes; "
        "`variables` and `blocks`: the training step.",
        growth, figures.growth,
    ),
    Section(
        "Normal modes", ("normal_modes",),
        "Pressures of SWellEx-96, seven frequencies an environment; see [geoacoustics](geoacoustics.md).", normal_modes,
    ),
    Section(
        "The report's explorer", ("report_explorer",),
        "One frame of the live explorer in a browser; see [the report](report.md).", explorer,
    ),
)  # fmt: skip
