"""The native library is made once, kept where nobody else can write, and checked before it is loaded."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from isr.native import library
from isr.tables.whole_files import cache_dir

pytestmark = pytest.mark.skipif(not library.library().tag, reason="no C compiler, or another system")

MADE, TELL = "C kernels, compiled for this processor", "import isr.native; print(isr.native.status())"


def told_with(folder, program: str = TELL, **settings: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"ISR_CACHE": str(folder)} | settings,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def private(tmp_path, monkeypatch):
    """An empty cache folder of the user's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ISR_CACHE", str(folder))
    assert cache_dir() == folder
    return folder


@pytest.fixture
def kept(private):
    """The library in its folder, made by this process once more."""
    library._load(library.library().tag)
    (path,) = private.iterdir()
    return path


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"ISR_NATIVE": "off"}, "XLA alone: ISR_NATIVE=off"),
        ({"PATH": "", "CC": ""}, "XLA alone: there is no C compiler (CC, cc, gcc or clang)"),
        ({"CC": "false"}, "XLA alone: the C compiler failed: exit code 1"),
    ],
)
def test_without_a_compiler_that_works_a_fit_is_left_to_xla_and_told_why(settings, status, private):
    assert told_with(private, **settings) == status
    assert list(private.iterdir()) == []


def test_a_compiler_that_hangs_is_stopped(private, tmp_path, monkeypatch):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\nexec sleep 60\n")
    compiler.chmod(0o700)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setattr(library, "LONGEST_SECONDS", 0.2)
    assert library._library.__wrapped__().status == "XLA alone: the C compiler was stopped after 0.2 s"


def test_the_library_is_compiled_once_and_kept_for_its_user_alone(private):
    assert told_with(private) == MADE
    (path,) = private.iterdir()
    assert path.name.startswith(f"native-{library.library().tag}-")
    assert private.stat().st_mode & 0o777 == path.stat().st_mode & 0o777 == 0o700
    assert told_with(private, PATH="") == MADE
    assert told_with(private, ISR_CACHE="off") == MADE
    assert [p.name for p in private.iterdir()] == [path.name]


def test_a_folder_in_which_nothing_can_be_kept_means_a_library_for_this_process(tmp_path):
    (tmp_path / "file").touch()
    assert told_with(tmp_path / "file") == MADE
    assert told_with(tmp_path, ISR_CACHE="", XDG_CACHE_HOME=str(tmp_path / "file")) == MADE


def others_may_write(path):
    path.chmod(0o722)


def link_elsewhere(path):
    shutil.move(path, path.parent.parent / "elsewhere.so")
    path.symlink_to(path.parent.parent / "elsewhere.so")


def damage(path):
    code = path.read_bytes()
    path.unlink()  # this process runs what was there
    path.write_bytes(code[:-1] + b"?")
    path.chmod(0o700)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (others_may_write, "others may write to it"),
        (link_elsewhere, "symbolic links"),
        (damage, "is damaged"),
    ],
)
def test_a_library_that_may_not_be_ours_is_not_loaded_but_made_anew(change, told, kept):
    change(kept)
    with pytest.raises(OSError, match=told):
        library._opened(kept)
    library._load(library.library().tag)
    assert library._opened(kept)


def test_a_library_or_a_folder_of_somebody_else_is_not_used(kept, private, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345678)
    with pytest.raises(PermissionError, match="belongs to somebody else"):
        library._opened(kept)
    assert cache_dir() is None


def test_a_library_without_our_functions_is_replaced(kept, private, tmp_path):
    source = tmp_path / "junk.c"
    source.write_text("int nothing;")
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(tmp_path / "junk.so")], check=True)
    junk = (tmp_path / "junk.so").read_bytes()
    name = private / f"native-{library.library().tag}-{'0' * 64}.so"
    name = name.with_name(name.name.replace("0" * 64, library._digest(junk)))
    kept.unlink()
    name.write_bytes(junk)
    name.chmod(0o700)
    assert told_with(private) == MADE
    assert [path.name for path in private.iterdir()] == [kept.name]


def test_what_is_loaded_is_what_was_checked_though_the_name_changes_hands(kept, monkeypatch):
    whole, digest = kept.read_bytes(), library._digest

    def swapped(code):
        kept.unlink()
        kept.write_bytes(b"junk of somebody who was quick")
        return digest(code)

    monkeypatch.setattr(library, "_digest", swapped)
    assert library._opened(kept).isr_forward
    assert kept.read_bytes() != whole


def test_what_a_stopped_compiler_started_ends_with_it(private, tmp_path, monkeypatch):
    compiler = tmp_path / "cc"
    compiler.write_text(f"#!/bin/sh\nsleep 60 & echo $! > {tmp_path}/child\nwait\n")
    compiler.chmod(0o700)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setattr(library, "LONGEST_SECONDS", 0.5)
    assert "was stopped after 0.5 s" in library._library.__wrapped__().status
    child = Path("/proc") / (tmp_path / "child").read_text().strip()
    assert not child.exists() or "Z" in (child / "stat").read_text().split()[2]


def test_a_folder_under_one_that_anybody_may_change_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "shared" / "mine").mkdir(parents=True)
    (tmp_path / "shared" / "mine").chmod(0o700)
    monkeypatch.setenv("ISR_CACHE", str(tmp_path / "shared" / "mine"))
    assert cache_dir() is not None
    (tmp_path / "shared").chmod(0o777)
    assert cache_dir() is None


KEEP = """
import jax, warnings
from isr.training.loop import keep_compiled_programs
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    keep_compiled_programs()
print(jax.config.jax_compilation_cache_dir, *(w.message for w in told))
"""


def test_compiled_programs_that_others_may_have_written_are_not_run(private, tmp_path):
    left = private / "program-of-somebody-cache"
    left.touch()
    left.chmod(0o666)
    assert told_with(private, KEEP) == str(private)
    assert not left.exists()
    shared = tmp_path / "shared"
    shared.mkdir()
    assert told_with(private, KEEP, JAX_COMPILATION_CACHE_DIR=str(shared)) == str(shared)
    shared.chmod(0o777)
    told = told_with(private, KEEP, JAX_COMPILATION_CACHE_DIR=str(shared))
    assert told.startswith("None JAX's cache of compiled programs")
    assert told.endswith("chmod 700), or leave it to isr")


def test_a_folder_that_others_may_write_to_is_not_used(private):
    private.chmod(0o770)
    assert cache_dir() is None


def test_the_folder_of_the_user_s_cache_is_made_private(tmp_path, monkeypatch):
    monkeypatch.delenv("ISR_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "isr").mkdir(mode=0o775)
    assert cache_dir() == tmp_path / "isr"
    assert (tmp_path / "isr").stat().st_mode & 0o777 == 0o700


def test_threads_that_begin_side_by_side_share_one_library(private):
    program = (
        "from concurrent.futures import ThreadPoolExecutor; from isr.native import library;"
        "print(*{*ThreadPoolExecutor(4).map(lambda _: library.library().tag, range(4))})"
    )
    assert told_with(private, program, ISR_CACHE="off") == library.library().tag
