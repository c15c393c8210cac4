"""Builds Polybus: what is hot is compiled with mypyc where a C compiler is, and all of it is plain Python besides.

`POLYBUS_BUILD` chooses: `auto` (the default) compiles where that is possible and says loudly where it is not, `plain`
makes a pure wheel, `compiled` fails where nothing can be compiled. What is compiled is listed in
`src/polybus/_compiled.py`. Everything else about the package is in `pyproject.toml`.

An editable install never has compiled modules: they would lie among the sources, where a stale one wins the import.
There `scripts/compile.py` runs the same build into the environment.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import OptionError

ROOT = Path(__file__).resolve().parent
UNITS = 16
"""Files that the C of all modules is gathered in. Fewer parse the one large header less often; more keep all cores
busy to the end and the compiler's memory small."""
QUICKLY = ["-fno-gcse", "-fno-tree-pre", "-fno-tree-vectorize", "-fno-schedule-insns2"]
"""Passes that take an eighth of the compiler's time and do nothing for this code, which counts references and jumps."""
WORKERS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def say(text: str) -> None:
    print(f"polybus: {text}", file=sys.stderr, flush=True)


def listed() -> ModuleType:
    """The package's own list of what is compiled. The package itself is not imported: it needs what is not here yet."""
    spec = importlib.util.spec_from_file_location("_compiled", ROOT / "src" / "polybus" / "_compiled.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def why_not() -> str:
    """Why nothing can be compiled here; empty where it can be."""
    if importlib.util.find_spec("mypyc") is None:
        return "mypyc is not installed"
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.c"
        probe.write_text("#include <Python.h>\n")
        command = [*shlex.split(compiler), "-fsyntax-only", f"-I{sysconfig.get_path('include')}", str(probe)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except OSError:
            return f"there is no C compiler ({compiler})"
        except subprocess.CalledProcessError:
            return f"{compiler} finds no headers of Python {sys.version_info.major}.{sys.version_info.minor}"
    return ""


def wants_compiled() -> bool:
    wanted = os.environ.get("POLYBUS_BUILD", "auto")
    if wanted not in ("auto", "plain", "compiled"):
        raise OptionError(f"POLYBUS_BUILD is auto, plain or compiled, not {wanted!r}")
    if wanted == "plain":
        return False
    reason = why_not()
    if reason and wanted == "compiled":
        raise OptionError(f"POLYBUS_BUILD=compiled, but {reason}")
    if reason:
        say(f"WARNING: {reason}. THIS IS THE PLAIN BUILD, several times slower than the compiled one.")
    return not reason


class CompiledModules(build_ext):
    """Lets mypyc write the C when it is needed, which takes seconds, and compiles it on all cores."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.inplace:
            self.extensions = []

    def run(self) -> None:
        if self.inplace:
            say("compiled modules are not put among the sources; scripts/compile.py builds them for development")
            return
        say("translating the hot modules into C ...")
        self.distribution.ext_modules = self._extensions()
        self.swig_opts = None  # which can be finalized once only
        super().finalize_options()
        self.parallel = self.parallel or WORKERS
        super().run()

    def _extensions(self) -> list[Extension]:
        from mypyc.build import mypycify

        target = Path(self.build_temp)
        paths = [os.path.relpath(path) for path in listed().source_files()]
        # Types are checked by scripts/lint; here packages may be missing that only it needs.
        options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
        shared, *shims = mypycify(
            [*options, *paths],
            opt_level="2",
            debug_level="0",
            multi_file=True,
            group_name="polybus",
            target_dir=str(target),
        )
        shared.sources = gathered(shared.sources, target)
        # mypyc gives one list to all, so each gets one of its own.
        shared.extra_compile_args = [*shared.extra_compile_args, "-w", *QUICKLY]
        for shim in shims:
            shim.extra_compile_args = [*shim.extra_compile_args, "-w", "-O0"]  # it runs once
        return [shared, *shims]

    def build_extensions(self) -> None:
        total = sum(len(extension.sources) for extension in self.extensions)
        compile_one, progress = self.compiler.compile, Progress(total)

        def compile_all(sources: list[str], *given: Any, **options: Any) -> list[str]:
            def compiled(source: str) -> list[str]:
                objects: list[str] = compile_one([source], *given, **options)
                progress.step()
                return objects

            with ThreadPoolExecutor(WORKERS) as pool:
                return [name for names in pool.map(compiled, sources) for name in names]

        self.compiler.compile = compile_all
        super().build_extensions()


def gathered(sources: list[str], target: Path) -> list[str]:
    """The files of the modules included by a few, of about the same size; the others as they are."""
    modules = [source for source in sources if Path(source).name.startswith("__native_polybus_")]
    units: list[list[str]] = [[] for _ in range(UNITS)]
    sizes = [0] * UNITS
    for source in sorted(modules, key=lambda path: (-Path(path).stat().st_size, path)):
        least = sizes.index(min(sizes))
        units[least].append(source)
        sizes[least] += Path(source).stat().st_size
    made = []
    for number, unit in enumerate(units):
        path = target / f"unit_{number}.c"
        path.write_text("".join(f'#include "{Path(source).name}"\n' for source in sorted(unit)))
        made.append(str(path))
    return made + [source for source in sources if source not in modules]


class Progress:
    """A line now and then, for this takes a minute."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def step(self) -> None:
        with self._lock:
            before, self._done = self._done, self._done + 1
            if self._done * 20 // self._total > before * 20 // self._total:
                say(f"compiled {self._done} of {self._total} files")


compiled = wants_compiled()
setup(
    # One stands for all until they are known: by it a wheel is for one platform, or for any.
    ext_modules=[Extension(listed().SHARED, [])] if compiled else [],
    cmdclass={"build_ext": CompiledModules},
)
