"""What `make docs` adds to the pages: KaTeX, search from a file, the executed gallery, version, repository link."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import gallery
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import isr

ROOT = Path(__file__).parents[1]
FETCHED = ROOT / "build" / "docs-packages"
PACKAGES = {"katex": "0.16.22", "iframe-worker": "1.0.4"}
"""What the pages need of npm, by name and version; fetched once, served from the site itself."""


def on_config(config: Any) -> Any:
    """Set the version in the footer and, where the clone has one, the link to its repository."""
    config.copyright = f"isr {isr.__version__} (<code>pip install symbolicflow</code>), MIT licence"
    found = subprocess.run(["git", "remote", "get-url", "origin"], cwd=ROOT, capture_output=True, text=True)
    address = found.stdout.strip().removesuffix(".git")
    if not config.repo_url and address.startswith("https://"):
        config.repo_url = address
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add files that are made, not written: fetched packages, and pages, figures and notebooks of the gallery."""
    for name, version in PACKAGES.items():
        folder = fetched(name, version)
        part = folder / ("dist" if name == "katex" else "shim")
        for path in sorted(p for p in part.rglob("*") if p.suffix in (".css", ".js", ".woff2")):
            if ".min." in path.name or path.suffix == ".woff2" or name != "katex":
                _add(files, config, f"assets/{name}/{path.relative_to(part)}", path)
    for path in gallery.built(ROOT / "examples" / "gallery", ROOT / "build" / "gallery"):
        _add(files, config, f"gallery/{path.name}", path)
    return files


def _add(files: Files, config: Any, uri: str, path: Path) -> None:
    files.append(File.generated(config, uri, abs_src_path=str(path)))


def fetched(name: str, version: str) -> Path:
    """Return the folder of an npm package, fetched unless it is there."""
    folder = FETCHED / f"{name}-{version}"
    if folder.is_dir():
        return folder / "package"
    if shutil.which("npm") is None:
        raise PluginError(f"the pages need {name} from npm; install npm (Debian: apt-get install npm)")
    FETCHED.mkdir(parents=True, exist_ok=True)
    command = ["npm", "pack", f"{name}@{version}", "--silent", "--pack-destination", str(FETCHED)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise PluginError(f"npm cannot fetch {name} {version}: {done.stderr.strip()}")
    with tarfile.open(FETCHED / done.stdout.strip().splitlines()[-1]) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"
