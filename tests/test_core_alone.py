"""The core is enough to fit, print, export, save, load and infer; what is missing is asked for by the extra's name."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from isr.tables.extras import EXTRAS

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]

# Hides every optional package, as if it had never been installed.
HIDE = f"""
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(p for packages in EXTRAS.values() for p in packages)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""
WORK = """
import numpy as np, pandas as pd, isr
from isr.cli import main
from isr.estimators.settings import Effort
rng = np.random.default_rng(0)
x = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
y = pd.DataFrame({"c": x["a"] - x["b"]})
training = isr.Training(Effort(60, 0, 0), n_restarts=1, penalty=None, verbose=False)
model = isr.ConditionalISR(n_blocks=1, n_layers=1, noise=0.1, training=training, random_state=0).fit(x, y)
assert "a" in str(model.expressions_) and isr.check(model.flow_, model.expressions_).passed
assert all(model.expressions_.code(lang) for lang in ("python", "c", "javascript"))
model.save("m.isr")
post = isr.load("m.isr").posterior({"c": 0.3})
print(post.summary(200), post.sample(5))
x.assign(c=y["c"]).to_csv("rows.csv", index=False)
def said(call):
    try: call()
    except ImportError as error: print(f"SAID {error}")
    else: raise AssertionError("nothing was missing")
from isr.tables.files import read_rows
open("rows.parquet", "wb").write(b"PAR1")
said(lambda: post.plot())
said(lambda: post.to_arviz(100))
said(lambda: read_rows("rows.parquet"))
said(lambda: isr.ocean.pressure)
from isr.tables.extras import need
said(lambda: need("blackjax"))
said(lambda: need("emcee"))
said(lambda: need("h5netcdf"))
said(lambda: need("openpyxl"))
main(["posterior", "m.isr", "--y", "c=0.3", "-n", "50", "--out", "d.parquet"])
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    return subprocess.run(
        [sys.executable, "-c", HIDE + WORK],
        capture_output=True, text=True, check=False, cwd=tmp_path_factory.mktemp("core"),
    )  # fmt: skip


def test_the_core_alone_fits_prints_exports_saves_loads_and_infers(outcome):
    assert "mean" in outcome.stdout, outcome.stderr


@pytest.mark.parametrize("package", [p for packages in EXTRAS.values() for p in packages])
def test_a_missing_package_is_asked_for_by_its_extra(package, outcome):
    extra = next(name for name, packages in EXTRAS.items() if package in packages)
    sentence = f"SAID {package} is not installed; install it with: pip install 'symbolicflow[{extra}]'"
    assert sentence in outcome.stdout, outcome.stderr


def test_the_command_line_says_so_too_and_leaves_with_the_code_of_a_mistake(outcome):
    assert outcome.returncode == 2, outcome.stderr
    assert outcome.stderr.splitlines()[-1] == (
        "error: pyarrow is not installed; install it with: pip install 'symbolicflow[files]'"
    )


def names_of(requirements):
    return {r.partition(">=")[0].strip() for r in requirements}


def test_the_extras_that_messages_name_are_those_that_can_be_installed():
    extras = PROJECT["optional-dependencies"]
    assert {name: names_of(extras[name]) for name in EXTRAS} == {k: set(v) for k, v in EXTRAS.items()}
    assert extras["all"] == [f"symbolicflow[{','.join(EXTRAS)}]"]
    assert "symbolicflow[all]" in extras["dev"]
    assert not names_of(PROJECT["dependencies"]) & {p for packages in EXTRAS.values() for p in packages}
    assert len(PROJECT["dependencies"]) <= 15
