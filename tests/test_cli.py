"""The command line: help, version, and errors in one line."""

import subprocess
import sys
import types

import pytest

import isr
from isr.cli import main


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as leave:
        main(list(arguments))
    return leave.value.code, *capsys.readouterr()


@pytest.fixture
def failing_demo(monkeypatch):
    def install(error):
        def run():
            raise error

        demo = types.ModuleType("isr.demo")
        demo.run = run
        monkeypatch.setitem(sys.modules, "isr.demo", demo)

    return install


def test_version_is_printed(capsys):
    assert run(capsys, "--version") == (0, f"isr {isr.__version__}\n", "")


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
    assert run(capsys, "demo") == (2, "", "error: wrong width\n")


def test_debug_shows_the_traceback(failing_demo):
    failing_demo(ValueError("wrong width"))
    with pytest.raises(ValueError, match="wrong width"):
        main(["--debug", "demo"])


def test_a_fault_of_ours_is_not_dressed_as_a_mistake_of_the_user(failing_demo):
    failing_demo(KeyError("inside"))
    with pytest.raises(KeyError):
        main(["demo"])


def test_an_unknown_command_is_refused(capsys):
    code, _, err = run(capsys, "nonsense")
    assert code == 2
    assert "No such command 'nonsense'" in err


def test_the_module_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "isr.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"isr {isr.__version__}\n"
