"""Seals, which mark runs as made here, and the stored consents of the user to other runs.

A seal is an HMAC of a run's (or group's) id and config hash, with a key that only this user has: in the user's config
directory, or in an environment variable that several machines may share. Host names and paths are not part of it, so a
run may be moved, renamed or copied. Consents to runs made elsewhere are stored beside the key, never in the run itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.system.atomic_io import temporary_path
from rl_training.types import ConfigError

KEY_VARIABLE = "RL_TRAINING_TRUST_KEY"
FOLDER, KEY_FILE, CONSENTS_FILE = "rl_training", "trust.key", "consents.json"
KEY_BYTES = 32
MAX_BYTES = 2**24


class Identity(NamedTuple):
    """What a seal or a consent is for: a kind of object, its id, and the hash of its config."""

    kind: str
    id: str
    digest: str

    def text(self) -> bytes:
        return json.dumps(["rl_training", 1, *self]).encode()

    def key(self) -> str:
        """Key of this identity in the file of consents."""
        return hashlib.sha256(self.text()).hexdigest()


def digest(mapping: Mapping[str, Any]) -> str:
    """SHA-256 of a config as it is stored."""
    return hashlib.sha256(json.dumps(mapping, sort_keys=True).encode()).hexdigest()


# -- seals ------------------------------------------------------------------------------------------------------------


def seal(identity: Identity) -> str | None:
    """The seal of something made here; None if there is no key and none can be created."""
    key = _key_of_environment() or _key_of_user() or _new_key()
    return None if key is None else _mark(key, identity)


def is_sealed(identity: Identity, mark: object) -> bool:
    """Whether `mark` is the seal of this identity under one of the user's keys."""
    import hmac

    if not isinstance(mark, str) or not mark.isascii():
        return False
    keys = (_key_of_environment(), _key_of_user())
    return any(key is not None and hmac.compare_digest(_mark(key, identity), mark) for key in keys)


def _mark(key: bytes, identity: Identity) -> str:
    import hmac

    return hmac.new(key, identity.text(), hashlib.sha256).hexdigest()


def _key_of_environment() -> bytes | None:
    text = os.environ.get(KEY_VARIABLE)
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest() if text else None


def _key_of_user() -> bytes | None:
    """The key in the user's config directory; None if it is missing or open to other users."""
    folder = config_folder()
    if folder is None:
        return None
    try:
        descriptor = os.open(folder / KEY_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_mode & 0o077 or status.st_uid != os.getuid():
            warnings.warn(
                f"{folder / KEY_FILE} is open to other users and not used; chmod 600 it",
                UserWarning,
                stacklevel=4,
            )
            return None
        with suppress(ValueError, UnicodeDecodeError):
            key = bytes.fromhex(file.read(1000).decode("ascii").strip())
            return key if len(key) == KEY_BYTES else None
    return None


def _new_key() -> bytes | None:
    """Create the user's key, or take the one that another process creates first; None if it cannot be written."""
    folder = config_folder()
    if folder is None:
        return None
    with suppress(OSError):
        _write_private(folder / KEY_FILE, f"{secrets.token_hex(KEY_BYTES)}\n".encode(), replace=False)
    return _key_of_user()


# -- consents ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remembered:
    """The user's consent to something that was not made here."""

    kind: str
    id: str
    code: tuple[str, ...]
    """The code that it names."""
    given: str
    """Time of the consent, ISO 8601."""


def is_remembered(identity: Identity) -> bool:
    return identity.key() in _read_consents()


def remember(identity: Identity, code: Sequence[str]) -> None:
    """Store the user's consent. If that fails, a warning says that it holds for this command only."""
    entry = Remembered(identity.kind, identity.id, tuple(code), datetime.now(UTC).isoformat(timespec="seconds"))
    try:
        _change_consents(lambda known: {**known, identity.key(): entry})
    except OSError as error:
        warnings.warn(
            f"the consent cannot be remembered ({error}) and holds for this command only", UserWarning, stacklevel=3
        )


def remembered() -> list[Remembered]:
    """All stored consents, oldest first."""
    return sorted(_read_consents().values(), key=lambda entry: entry.given)


def forget(ids: Sequence[str]) -> list[Remembered]:
    """Revoke the consents to these ids; returns them."""
    gone = [entry for entry in remembered() if entry.id in ids]
    if gone:
        try:
            _change_consents(lambda known: {key: entry for key, entry in known.items() if entry.id not in ids})
        except OSError as error:
            raise ConfigError(f"cannot write {_consents_file()}: {error.strerror}; remove the file by hand") from error
    return gone


def _consents_file() -> Path | None:
    folder = config_folder()
    return None if folder is None else folder / CONSENTS_FILE


def _read_consents() -> dict[str, Remembered]:
    """The stored consents; none if the file is damaged or other users can write to it."""
    path, found = _consents_file(), {}
    if path is None:
        return {}
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_IMODE(status.st_mode) & 0o022 or status.st_uid != os.getuid():
                return {}
            entries = json.loads(file.read(MAX_BYTES))["consents"]
        for key, entry in entries.items():
            code = tuple(map(str, entry["code"]))
            found[key] = Remembered(str(entry["kind"]), str(entry["id"]), code, str(entry["given"]))
    return found


def _change_consents(change: Callable[[dict[str, Remembered]], Mapping[str, Remembered]]) -> None:
    path = _consents_file()
    if path is None:
        raise OSError("there is no home directory")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _exclusive(path.parent):
        entries = {key: asdict(entry) for key, entry in change(_read_consents()).items()}
        text = json.dumps({"version": 1, "consents": entries}, indent=2)
        _write_private(path, f"{text}\n".encode(), replace=True)


# -- files ------------------------------------------------------------------------------------------------------------


def config_folder() -> Path | None:
    """Directory of keys and consents, by the XDG convention; None for a user without a home directory."""
    base = os.environ.get("XDG_CONFIG_HOME")
    if base and os.path.isabs(base):
        return Path(base) / FOLDER
    try:
        return Path.home() / ".config" / FOLDER
    except RuntimeError:
        return None


def _write_private(path: Path, data: bytes, *, replace: bool) -> None:
    """Atomically write a file that only the user can read; an existing one is kept unless `replace`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = temporary_path(path.parent)
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(temporary, path)
        else:
            _link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _link(source: Path, target: Path) -> None:
    """Give a file its final name; FileExistsError if another process was faster."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(source.read_bytes())


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without flock: the write is still atomic
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
