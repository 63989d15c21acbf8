"""Run generated code in its own language: rows in, what it computed out."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest


@dataclass
class Inputs:
    """Rows to run a model on; ``y`` has no columns where there is none."""

    x: np.ndarray
    z: np.ndarray
    y: np.ndarray

    @property
    def widths(self):
        return self.x.shape[1], self.y.shape[1], self.z.shape[1]

    @property
    def raw(self):
        return b"".join(np.ascontiguousarray(a, float).tobytes() for a in (self.x, self.z, self.y))


@dataclass
class Results:
    """What a model gives for `Inputs`: forward, inverse, log-determinant, log-density and draws from z."""

    forward: np.ndarray
    inverse: np.ndarray
    log_det: np.ndarray
    log_prob: np.ndarray
    draw: np.ndarray


def split(data, inputs):
    n, (n_x, _, n_latent) = len(inputs.x), inputs.widths
    values = np.frombuffer(data)
    places = np.cumsum([n * n_latent, n * n_x, n, n])
    forward, inverse, log_det, log_prob, draw = np.split(values, places)
    return Results(
        forward.reshape(n, n_latent), inverse.reshape(n, n_x), log_det, log_prob, draw.reshape(n, n_x)
    )


C_MAIN = r"""
#include <stdio.h>
#include <stdlib.h>

static double *fetch(size_t n)
{
    double *a = malloc((n + 1)*sizeof(double));
    if (!a || fread(a, sizeof(double), n, stdin) != n) exit(2);
    return a;
}

int main(int count, char **arguments)
{
    const size_t n = (size_t)atol(arguments[count - 1]);
    double *x = fetch(n*ISR_N_X), *z = fetch(n*ISR_N_LATENT), *y = fetch(n*ISR_N_Y);
    double *f = malloc(n*ISR_N_LATENT*sizeof(double)), *b = malloc(n*ISR_N_X*sizeof(double));
    double *d = malloc(n*sizeof(double)), *p = malloc(n*sizeof(double)), *s = malloc(n*ISR_N_X*sizeof(double));
    for (size_t i = 0; i < n; i++) {
        const double *here = y + i*ISR_N_Y;
        if (isr_forward(x + i*ISR_N_X, here, f + i*ISR_N_LATENT) != isr_log_det(x + i*ISR_N_X, here)) exit(3);
        isr_inverse(z + i*ISR_N_LATENT, here, b + i*ISR_N_X);
        d[i] = isr_log_det(x + i*ISR_N_X, here);
        p[i] = isr_log_prob(x + i*ISR_N_X, here);
        isr_draw(z + i*ISR_N_LATENT, here, s + i*ISR_N_X);
    }
    fwrite(f, sizeof(double), n*ISR_N_LATENT, stdout);
    fwrite(b, sizeof(double), n*ISR_N_X, stdout);
    fwrite(d, sizeof(double), n, stdout);
    fwrite(p, sizeof(double), n, stdout);
    fwrite(s, sizeof(double), n*ISR_N_X, stdout);
    isr_rng rng = isr_seed(7);
    isr_sample(n, y, &rng, s);
    fwrite(s, sizeof(double), n*ISR_N_X, stderr);
    return 0;
}
"""

JAVASCRIPT_MAIN = """
import fs from "fs";
import * as m from "./model.mjs";
const [file, n] = [process.argv[2], Number(process.argv[3])];
const raw = fs.readFileSync(file);
const all = new Float64Array(raw.buffer, raw.byteOffset, raw.length/8);
const x = all.subarray(0, n*m.nX), rest = all.subarray(n*m.nX);
const z = rest.subarray(0, n*m.nLatent), y = rest.subarray(n*m.nLatent);
const out = [new Float64Array(n*m.nLatent), new Float64Array(n*m.nX), new Float64Array(n), new Float64Array(n)];
const draws = new Float64Array(n*m.nX);
for (let i = 0; i < n; i++) {
  const here = m.nY ? y.subarray(i*m.nY, (i + 1)*m.nY) : undefined;
  const row = x.subarray(i*m.nX, (i + 1)*m.nX), latent = z.subarray(i*m.nLatent, (i + 1)*m.nLatent);
  out[0].set(m.forward(row, here), i*m.nLatent);
  out[1].set(m.inverse(latent, here), i*m.nX);
  out[2][i] = m.logDet(row, here);
  out[3][i] = m.logProb(row, here);
  m.drawInto(draws.subarray(i*m.nX, (i + 1)*m.nX), latent, 1, here);
}
const samples = m.sampleInto(new Float64Array(n*m.nX), n, m.nY ? y.subarray(0, m.nY) : undefined, new m.Rng(7));
for (const part of [...out, draws]) fs.writeSync(1, Buffer.from(part.buffer));
fs.writeFileSync("samples", Buffer.from(samples.buffer));
"""

PYTHON_MAIN = """
import importlib.abc, sys

class OnlyNumpy(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {*sys.stdlib_module_names, "numpy", "model"}:
            raise ModuleNotFoundError(f"{name} is not allowed here")

sys.meta_path.insert(0, OnlyNumpy())
sys.path.insert(0, ".")
import numpy as np
import model as m

n = int(sys.argv[2])
values = np.fromfile(sys.argv[1])
x, z, y = (a.reshape(n, -1) for a in np.split(values, np.cumsum([n*m.N_X, n*m.N_LATENT])))
y = y if m.N_Y else None
parts = m.forward(x, y), m.inverse(z, y), m.log_det(x, y), m.log_prob(x, y), m.draw(z, y)
sys.stdout.buffer.write(b"".join(np.ascontiguousarray(p, float).tobytes() for p in parts))
m.sample(n, None if y is None else y[0], seed=7).tofile("samples")
assert m.forward(x[0], None if y is None else y[0]).shape == (m.N_LATENT,)
"""


def run_c(source, inputs, folder, samples=False):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on PATH")
    (folder / "model.c").write_text(source)
    (folder / "main.c").write_text('#include "model.c"\n' + C_MAIN)
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O0", "main.c", "-o", "main", "-lm"]
    subprocess.run([compiler, *flags], cwd=folder, check=True)
    done = subprocess.run(
        ["./main", str(len(inputs.x))], input=inputs.raw, capture_output=True, cwd=folder, check=True
    )
    return np.frombuffer(done.stderr).reshape(inputs.x.shape) if samples else split(done.stdout, inputs)


def run_javascript(source, inputs, folder, samples=False):
    if shutil.which("node") is None:
        pytest.skip("no node on PATH")
    (folder / "model.mjs").write_text(source)
    (folder / "main.mjs").write_text(JAVASCRIPT_MAIN)
    (folder / "inputs").write_bytes(inputs.raw)
    with open(folder / "outputs", "wb") as outputs:  # a file, for writes to a pipe may come back unfinished
        subprocess.run(
            ["node", "main.mjs", "inputs", str(len(inputs.x))], stdout=outputs, cwd=folder, check=True
        )
    if samples:
        return np.fromfile(folder / "samples").reshape(inputs.x.shape)
    return split((folder / "outputs").read_bytes(), inputs)


def run_python(source, inputs, folder, samples=False):
    (folder / "model.py").write_text(source)
    (folder / "main.py").write_text(PYTHON_MAIN)
    (folder / "inputs").write_bytes(inputs.raw)
    command = [sys.executable, "-W", "error", "main.py", "inputs", str(len(inputs.x))]
    done = subprocess.run(
        command, capture_output=True, cwd=folder, env={**os.environ, "PYTHONPATH": ""}, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return np.fromfile(folder / "samples").reshape(inputs.x.shape) if samples else split(done.stdout, inputs)


RUNNERS = {"c": run_c, "javascript": run_javascript, "python": run_python}
