"""The program itself: help, version, completion, and errors in one line."""

import os
import subprocess
import sys
import time
import types
import warnings

import numpy as np
import pytest

import isr
from isr.cli import main
from isr.cli.options import priors_in
from isr.cli.output import heartbeat
from isr.cli.program import app
from isr.estimators.status import DivergedError
from isr.native import status


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as leave:
        main(list(arguments))
    return leave.value.code, *capsys.readouterr()


@pytest.fixture
def failing_demo(monkeypatch):
    def install(error):
        def run(*_, **__):
            raise error

        demo = types.ModuleType("isr.demo")
        demo.run = run
        monkeypatch.setitem(sys.modules, "isr.demo", demo)

    return install


def test_version_is_printed(capsys):
    assert run(capsys, "--version") == (0, f"isr {isr.__version__} ({status()})\n", "")


def test_help_lists_the_commands(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "demo" in out
    assert "--install-completion" in out


@pytest.mark.parametrize(
    "error", [ValueError("wrong\n  width"), TypeError("wrong width"), OSError("wrong width")]
)
def test_a_mistake_in_the_input_is_one_line_and_exit_code_2(error, failing_demo, capsys):
    failing_demo(error)
    assert run(capsys, "demo", "--force") == (2, "", "error: wrong width\n")


def test_the_demonstration_keeps_what_is_there(failing_demo, capsys, tmp_path):
    failing_demo(ValueError("it ran"))
    (tmp_path / "report.html").write_text("mine")
    code, _, err = run(capsys, "demo", "--out", str(tmp_path))
    assert code == 2
    assert "report.html exists already; choose another name or pass --force" in err
    assert "it ran" in run(capsys, "demo", "--out", str(tmp_path), "--force")[2]


def test_isr_alone_prints_its_help_and_no_error(capsys):
    code, out, err = run(capsys)
    assert (code, err) == (2, "")
    assert "Usage" in out


@pytest.mark.parametrize("arguments", [["--debug", "demo", "--force"], ["demo", "--force", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_stands(arguments, failing_demo):
    failing_demo(ValueError("wrong width"))
    with pytest.raises(ValueError, match="wrong width"):
        main(arguments)


def test_a_fault_of_ours_is_not_dressed_as_a_mistake_of_the_user(failing_demo, capsys):
    failing_demo(KeyError("inside"))
    code, _, err = run(capsys, "demo", "--force")
    assert code == 1
    assert err.startswith("error: unexpected KeyError: 'inside'; this is a fault of isr")


def test_an_unknown_command_is_refused_in_one_line(capsys):
    code, out, err = run(capsys, "nonsense")
    assert (code, out) == (2, "")
    assert err == "error: No such command 'nonsense'; see isr --help\n"


def test_an_interrupt_has_its_own_exit_code(failing_demo, capsys):
    failing_demo(KeyboardInterrupt())
    assert run(capsys, "demo", "--force") == (130, "", "error: interrupted\n")


def test_a_fit_without_a_model_has_its_own_exit_code(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def diverge(*_):
        raise DivergedError

    monkeypatch.setattr("isr.estimators.symbolic_flow.SymbolicFlow.fit", diverge)
    rows = np.random.default_rng(0).normal(size=(50, 2))
    np.savez("rows.npz", a=rows[:, 0], b=rows[:, 1])
    code, _, err = run(
        capsys, "fit", "rows.npz", "--x", "a,b", "--quick", "--restarts", "1", "--out", "m.isr"
    )
    assert code == 3
    assert "error: every restart diverged, so there is no model" in err


ONE_LINE, NONE = "read line", "exec 0<&-"


@pytest.mark.parametrize(
    ("command", "reader"),
    [pytest.param("show {model}", ONE_LINE, marks=pytest.mark.slow), ("show {model} --json", NONE),
     pytest.param("sample {model} -n 20000", NONE, marks=pytest.mark.slow), ("--help", ONE_LINE)],
)  # fmt: skip
def test_a_pipe_closed_by_its_reader_ends_a_command_quietly(command, reader, models):
    arguments = command.format(model=models["flow"])
    script = f"{sys.executable} -m isr.cli {arguments} | ({reader}); echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_warning_is_one_line_on_stderr(monkeypatch, capsys):
    demo = types.ModuleType("isr.demo")
    demo.run = lambda *_, **__: warnings.warn("mind\n  the gap", stacklevel=1)
    monkeypatch.setitem(sys.modules, "isr.demo", demo)
    assert run(capsys, "demo", "--force") == (0, "", "warning: mind the gap\n")


@pytest.mark.parametrize("command", [c.name or c.callback.__name__ for c in app.registered_commands])
def test_every_command_has_help_with_an_example(command, capsys):
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"Example: isr {command}" in " ".join(out.split())


def test_help_tells_the_exit_codes(capsys):
    assert "Exit codes: 0 done" in run(capsys, "--help")[1]


def test_the_module_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "isr.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"isr {isr.__version__} ({status()})\n"


def test_the_shell_can_complete_commands_and_methods():
    def completed(words, index):
        environment = os.environ | {
            "_ISR_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(index),
        }
        code = "from isr.cli import main; main([])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        return done.stdout.split()

    assert completed("isr po", 1) == ["posterior"]
    assert sorted(completed("isr fit rows.csv --method ci", 4)) == ["cinn", "cisr"]


def test_a_reader_that_leaves_early_is_no_error():
    code = "from isr.cli import main; main(['--help'])"
    done = subprocess.run(
        f'{sys.executable} -c "{code}" | head -c 1', shell=True, capture_output=True, text=True, check=True
    )
    assert "Traceback" not in done.stderr


def test_a_prior_is_read_by_name_and_a_wrong_one_is_a_sentence():
    found = priors_in(['"p, Pa"=normal(2, 0.5), t=uniform(0,80)', "v=lognormal(0,1)"])
    assert found["t"] == (0.0, 80.0)
    assert (found["p, Pa"].mean(), found["p, Pa"].std()) == (2.0, 0.5)
    assert found["v"].median() == 1.0
    for wrong in ("t=uniform(0)", "t=cauchy(0,1)", "t", "t=uniform(0,1"):
        with pytest.raises(ValueError, match=r"--prior cannot read .*; write it as name=uniform"):
            priors_in([wrong])
    with pytest.raises(ValueError, match="--prior needs a number for 't', got 'a'"):
        priors_in(["t=uniform(a,1)"])


def test_a_long_work_says_every_so_often_that_it_goes_on(capsys):
    with heartbeat("fitting m.isr", most=60.0, every=0.05):
        time.sleep(0.18)
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 4
    assert lines[0] == "fitting m.isr: 0 s so far, at most 60 s left"
