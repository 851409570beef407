"""Compiled programs on disk, ready to run: a warm start neither traces nor compiles.

The compilation cache of jax is keyed by the traced program, and tracing takes the longest part of a warm start. The key
here is a description instead: versions, flags, processor, the package's own files, the shape of the run and its inputs.
It does not cover other code, so only programs made entirely of the package's own parts are stored.

A loaded program is code. It is read only from the package's cache folder, and only if no other user can write there.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import jax
from jax.experimental.compilation_cache import compilation_cache
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from rl_training.jax.runtime import cache_folder
from rl_training.registry import import_own
from rl_training.system.atomic_io import atomic_write
from rl_training.version import __version__

KEPT = 64
"""Largest number of programs in the folder; the least recently used are removed."""
PACKAGE = next(folder for folder in Path(__file__).parents if folder.name == "rl_training")
"""The folder of the package, wherever in it this module is."""


_pending: list[Future[Any]] = []
"""Programs that are being loaded or compiled in the background, or were."""


def are_coming() -> bool:
    """Whether programs are still being loaded or compiled in the background."""
    return not all(future.done() for future in _pending)


class Program:
    """A jitted function, loaded from disk at its first call if it was compiled before. Without a `description` it is
    not stored.

    Threads that make the first call at the same time compile it once. After `prepare` the first call only waits.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        description: str | None,
        *,
        devices: Sequence[Any] | None = None,
        **jit_options: Any,
    ) -> None:
        """`devices` are those that the program runs on: by default one, that of the process."""
        self.devices = devices
        self.jitted = jax.jit(function, **jit_options)
        # a compiled program belongs to the devices that it was compiled for
        places = "" if devices is None else f"on {[device.id for device in devices]} "
        self.question = f"{places}{function.__name__} {jit_options} {description}"
        self.is_kept = description is not None
        self.run: Callable[..., Any] | None = None
        self.first_call = threading.Lock()
        self.pending: Future[Callable[..., Any] | None] | None = None
        """The work that `prepare` started in the background; its result is None if the file was damaged."""

    def __call__(self, *args: Any) -> Any:
        if self.run is not None:
            return self.run(*args)
        with self.first_call:
            run = self.run or self._prepared(args)
            result = run(*args)
            self.run = run
        return result

    def prepare(self, *args: Any) -> None:
        """Start to load or compile it in the background; of `args` only shapes and dtypes matter. Tracing is done here,
        because it depends on settings of the thread and may raise errors about the user's code."""
        with self.first_call:
            if self.run is not None or self.pending is not None:
                return
            if not self._may_keep():
                jax.eval_shape(self.jitted, *args)
                return
            path = self._path(args)
            work: Callable[[], Callable[..., Any] | None] = partial(load, path, args, self.devices)
            if not path.exists():
                work = partial(compile_and_save, self.jitted.lower(*args), path)
            helper = ThreadPoolExecutor(1, "program")
            self.pending = helper.submit(work)
            _pending.append(self.pending)
            helper.shutdown(wait=False)

    def _prepared(self, args: tuple[Any, ...]) -> Callable[..., Any]:
        if not self._may_keep():
            return cast(Callable[..., Any], self.jitted)
        if self.pending is not None and (made := self.pending.result()) is not None:
            return made
        path = self._path(args)
        return load(path, args, self.devices) or compile_and_save(self.jitted.lower(*args), path)

    def _may_keep(self) -> bool:
        return self.is_kept and trusted_folder()

    def _path(self, args: tuple[Any, ...]) -> Path:
        return program_path(f"{self.question} {shapes(args)}")


def load(path: Path, args: tuple[Any, ...], devices: Sequence[Any] | None = None) -> Callable[..., Any] | None:
    """The executable in a file, for `devices` or that of the process; None if there is no file or it is damaged."""
    with suppress(Exception):  # after any failure the program is compiled again
        content = path.read_bytes()
        digest, payload = content[:32], content[32:]
        if hashlib.sha256(payload).digest() == digest:
            os.utime(path)
            outputs, _, executable = payload.partition(b"\n")
            trees = jax.tree.structure((args, {})), jax.tree.structure(rebuilt(json.loads(outputs)))
            # jax would take all devices of the process, also for a program that was compiled for one
            loaded: Callable[..., Any] = deserialize_and_load(
                executable, *trees, execution_devices=list(devices or [own_device()])
            )
            return loaded
    return None


def compile_and_save(lowered: Any, path: Path) -> Callable[..., Any]:
    """Compile a traced program and store it; a failure to store it is ignored."""
    with uncached():
        compiled = lowered.compile()
    with suppress(OSError, NotImplementedError, ValueError):  # a full disk, or a device without serialisation
        executable, _, outputs = serialize(compiled)
        text = json.dumps(skeleton(jax.tree.unflatten(outputs, range(outputs.num_leaves))))
        payload = text.encode() + b"\n" + executable
        atomic_write(path, hashlib.sha256(payload).digest() + payload)
        kept = sorted(path.parent.glob("*.program"), key=lambda file: file.stat().st_mtime)
        for old in kept[:-KEPT]:
            old.unlink(missing_ok=True)
    called: Callable[..., Any] = compiled
    return called


def skeleton(tree: Any) -> Any:
    """The structure of a pytree of dicts and tuples as JSON; the first element of a tuple is the name of its class."""
    if isinstance(tree, dict):
        return {name: skeleton(inner) for name, inner in tree.items()}
    if isinstance(tree, tuple):
        kind = type(tree)
        return [f"{kind.__module__}:{kind.__name__}" if kind is not tuple else "", *map(skeleton, tree)]
    return None if tree is None else 0


def rebuilt(parts: Any) -> Any:
    """The inverse of `skeleton`: a pytree of that structure with zeros as leaves."""
    if isinstance(parts, dict):
        return {name: rebuilt(inner) for name, inner in parts.items()}
    if isinstance(parts, list):
        inner = list(map(rebuilt, parts[1:]))
        return import_own(parts[0], "pytree")(*inner) if parts[0] else tuple(inner)
    return parts


@contextmanager
def uncached() -> Iterator[None]:
    """Bypass jax's compilation cache: a program from that cache runs, but is incomplete when it is serialised."""
    with _turned_off:
        folder = jax.config.values["jax_compilation_cache_dir"]
        set_cache(None)
        try:
            yield
        finally:
            set_cache(folder)


_turned_off = threading.Lock()


def set_cache(folder: str | None) -> None:
    jax.config.update("jax_compilation_cache_dir", folder)
    compilation_cache.reset_cache()  # jax remembers whether it has a cache until this call


def program_path(question: str) -> Path:
    settings = {name: value for name, value in jax.config.values.items() if name != "jax_compilation_cache_dir"}
    threads_and_flags = [os.environ.get(name) for name in ("XLA_FLAGS", "NPROC")]
    text = f"{question} {settings} {threads_and_flags} {all_devices()} {surroundings()}"
    return cache_folder() / f"{hashlib.sha256(text.encode()).hexdigest()}.program"


def own_device() -> Any:
    """The device on which programs of this process run, unless they are spread over several."""
    return jax.config.values["jax_default_device"] or jax.local_devices()[0]


def all_devices() -> str:
    """Kind and number of the devices that programs are compiled for."""
    return f"{jax.devices()[0].device_kind} x {jax.local_device_count()}"


def shapes(args: tuple[Any, ...]) -> str:
    """Structure, shapes and dtypes of the inputs of a program."""
    leaves, structure = jax.tree.flatten(args)
    return f"{structure} {[(leaf.shape, leaf.dtype) for leaf in leaves]}"


@cache
def surroundings() -> str:
    """Everything that a program depends on and that does not change while a process runs: versions, processor, and size
    and modification time of every Python file of the package."""
    stamps = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(PACKAGE.rglob("*.py"))]
    libraries = (jax.__version__, version("jaxlib"), optax_version())
    versions = (__version__, *libraries, platform.python_version(), platform.platform())
    return f"{versions} {processor()} {stamps}"


def optax_version() -> str:
    """An optimiser of optax is part of a program; empty where optax is not installed."""
    with suppress(PackageNotFoundError):
        return version("optax")
    return ""


def processor() -> str:
    """The instruction sets of the processor: different machines may share a home folder."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor()


def trusted_folder() -> bool:
    """Whether the cache folder belongs to this user and no other user can write to it."""
    status = cache_folder().stat()
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)
