"""Keeps secrets out of run directories: each one is written as `${env:NAME}` and read from the environment at resume.

A secret is a text under a key that names one (token, secret, password, api_key), the userinfo of a URL, or the value of
an environment variable with such a name. Numbers, booleans and null never are: `max_tokens: 5` stays what it is.
"""

from __future__ import annotations

import json
import os
import re
import urllib.parse
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rl_training.config import TrainConfig
from rl_training.config_loading import config_to_mapping, parse_config
from rl_training.types import ConfigError

# A tokenizer is not a token.
_KEYWORDS = r"token(?!i[sz])|secret|password|passwd|passphrase|private[_-]?key|api[_-]?key"
_SECRET_KEY = re.compile(_KEYWORDS, re.IGNORECASE)
_KEYWORD_HINTS = ("token", "secret", "passw", "passphrase", "private", "api")
_REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_USERINFO = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^\s/?'\"<>]+)@")
_LITERAL = r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\''
_ASSIGNMENT = re.compile(
    rf"(?P<key>(?:{_KEYWORDS})[A-Za-z0-9_-]{{0,64}})(?P<separator>[\"']?\s{{0,16}}[:=]\s{{0,16}})"
    rf"(?P<value>{_LITERAL}|[^\s\"'#,\]}}]+)",
    re.IGNORECASE,
)
_KEY_BEGINNING = re.compile(r"[A-Za-z0-9_.-]*\Z")
_PLAIN = re.compile(r"[-+.\d][-+.\de_]*|true|false|yes|no|on|off|null|none|nan|~|[|>][-+]?|", re.IGNORECASE)
_MIN_LENGTH = 6
"""Shorter values cannot be told from ordinary words, so they are only hidden where their key says what they are."""


def is_secret_key(key: str) -> bool:
    """Whether a config key, flag or environment variable of this name holds a secret.

    >>> is_secret_key("WANDB_API_KEY"), is_secret_key("tokenizer")
    (True, False)
    """
    return _SECRET_KEY.search(key) is not None


def restore(value: Any, environ: Mapping[str, str] | None = None) -> Any:
    """A copy of `value` with every `${env:NAME}` replaced; ConfigError names all variables that are not set."""
    environ = os.environ if environ is None else environ
    missing: set[str] = set()

    def lookup(match: re.Match[str]) -> str:
        if match[1] not in environ:
            missing.add(match[1])
            return match[0]
        return environ[match[1]]

    restored = _map_strings(value, lambda text: _REFERENCE.sub(lookup, text))
    if missing:
        names = ", ".join(sorted(missing))
        raise ConfigError(f"the config reads secrets from the environment, and these are not set: {names}; export them")
    return restored


def with_secrets(cfg: TrainConfig) -> TrainConfig:
    """A config to run: every `${env:NAME}` in it replaced by that variable's text."""
    mapping = config_to_mapping(cfg)
    restored = restore(mapping)
    return cfg if restored == mapping else parse_config(restored, source="config with its secrets")


class Redactor:
    """Replaces secrets by references. What `mapping` finds in a config is then also hidden in texts and arguments."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._names: dict[str, str] = {}
        """Secret value to the variable that stands for it."""
        self._derived: dict[str, str] = {}
        """Variable that nobody has set yet to the place in the config it was named after."""
        for name, value in self._environ.items():
            # A short number in a variable such as MAX_TOKENS is no secret, and common in texts.
            too_plain = len(value) < _MIN_LENGTH or (_PLAIN.fullmatch(value) and len(value) < 2 * _MIN_LENGTH)
            if is_secret_key(name) and not too_plain:
                self._names.setdefault(value, name)
        self._pattern = self._compile()

    @property
    def needed(self) -> dict[str, str]:
        """Variables a resume will need that are not set now, each with the place in the config it stands for."""
        return dict(self._derived)

    @property
    def needed_values(self) -> dict[str, str]:
        """The same variables with their secrets: what a process that reads the redacted config must find exported."""
        return {name: value for value, name in self._names.items() if name in self._derived}

    def mapping(self, tree: Any) -> Any:
        """A copy of a config mapping without secrets."""
        for path, text in _strings(tree):
            self._learn(path, text)
        self._pattern = self._compile()
        return self._redact_tree(tree, ())

    def text(self, text: str, *, code: bool = False) -> str:
        """A text without secrets. In `code`, only quoted literals count as values: `token = next_token()` stays."""
        lowered = text.lower()
        if any(hint in lowered for hint in _KEYWORD_HINTS):
            text = _ASSIGNMENT.sub(lambda match: self._redact_assignment(match, code), text)
        return self._redact_userinfo(self._redact_values(text, short=True), "URL_USERINFO")

    def diff(self, diff: str) -> str:
        """A `git diff` without secrets: source code keeps its expressions, other files are plain text."""
        sections = re.split(r"(?m)^(?=diff --git )", diff)
        return "".join(self.text(section, code=_is_code(section.partition("\n")[0])) for section in sections)

    def argv(self, argv: Sequence[str]) -> list[str]:
        """A command line without secrets, for `--password x`, `--password=x`, `env.password=x` and URLs."""
        redacted: list[str] = []
        key = ""
        for argument in argv:
            if key and not argument.startswith("--") and not _PLAIN.fullmatch(argument):
                redacted.append(_reference(self._names.get(argument) or _variable(key)))
            else:
                redacted.append(self.text(argument))
            flag = argument.startswith("--") and "=" not in argument
            key = argument.lstrip("-") if flag and is_secret_key(argument) else ""
        return redacted

    def warn_about_needed(self) -> None:
        """One warning for all secrets that only the config holds: a resume finds them only if they are exported."""
        if not self._derived:
            return
        names = ", ".join(f"{name} (for {place})" for name, place in self._derived.items())
        warnings.warn(
            f"secrets are never written to a run directory; to resume or evaluate this run, export {names}. "
            "Better: export them now and write ${env:NAME} in the config",
            UserWarning,
            stacklevel=3,
        )

    def _learn(self, path: tuple[str, ...], text: str) -> None:
        if _REFERENCE.search(text) or not text:
            return
        if any(is_secret_key(key) for key in path):
            if text not in self._names:
                self._names[text] = self._name_for(text, path)
            return
        for match in _USERINFO.finditer(text):
            whole = next((name for name, value in self._environ.items() if value == text), None)
            secret = text if whole else match[2]
            if secret not in self._names and not any(
                value in secret for value in self._names if len(value) >= _MIN_LENGTH
            ):
                self._names[secret] = whole or self._name_for(match[2], (*path, "userinfo"))

    def _name_for(self, secret: str, path: tuple[str, ...]) -> str:
        """The variable that already holds `secret`, or one named after its place that does not exist yet."""
        holder = next((name for name, value in self._environ.items() if value == secret), None)
        if holder is not None:
            return holder
        base = name = _variable("_".join(path))
        count = 1
        while name in self._environ or name in self._derived:
            count += 1
            name = f"{base}_{count}"
        self._derived[name] = ".".join(path)
        return name

    def _redact_tree(self, node: Any, path: tuple[str, ...]) -> Any:
        if isinstance(node, Mapping):
            return {key: self._redact_tree(value, (*path, str(key))) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return type(node)(self._redact_tree(value, (*path, str(index))) for index, value in enumerate(node))
        if not isinstance(node, str):
            return node
        if node in self._names and (len(node) >= _MIN_LENGTH or any(is_secret_key(key) for key in path)):
            return _reference(self._names[node])
        return self._redact_userinfo(self._redact_values(node, short=False), _variable("_".join((*path, "userinfo"))))

    def _redact_assignment(self, match: re.Match[str], code: bool) -> str:
        value = match["value"]
        quote = value[0] if value[0] in "\"'" and value[0] == value[-1] and len(value) > 1 else ""
        inner = value[1:-1] if quote else value
        if (
            (code and not quote)
            or _PLAIN.fullmatch(inner)
            or _REFERENCE.search(inner)
            or inner.startswith(("${", "[", "{"))
        ):
            return match[0]
        beginning = _KEY_BEGINNING.search(match.string, max(match.start() - 64, 0), match.start())
        name = self._names.get(inner) or _variable((beginning[0] if beginning else "") + match["key"])
        return f"{match['key']}{match['separator']}{quote}{_reference(name)}{quote}"

    def _redact_userinfo(self, text: str, name: str) -> str:
        if "@" not in text:
            return text

        def replace(match: re.Match[str]) -> str:
            if _REFERENCE.search(match[2]):
                return match[0]
            return f"{match[1]}{_reference(self._names.get(match[2], name))}@"

        return _USERINFO.sub(replace, text)

    def _redact_values(self, text: str, *, short: bool) -> str:
        spelling_names, pattern = self._pattern
        if pattern is None or not any(spelling in text for spelling in spelling_names):
            return text

        def replace(match: re.Match[str]) -> str:
            name = spelling_names.get(match[0])
            if name is None or (not short and len(match[0]) < _MIN_LENGTH):
                return match[0]
            return _reference(name)

        return pattern.sub(replace, text)

    def _compile(self) -> tuple[dict[str, str], re.Pattern[str] | None]:
        spelling_names: dict[str, str] = {}
        for value, name in self._names.items():
            for spelling in _spellings(value):
                spelling_names.setdefault(spelling, name)
        if not spelling_names:
            return {}, None
        longest_first = sorted(spelling_names, key=len, reverse=True)
        # References come first, so that one secret never rewrites the name that stands for another.
        parts = [_REFERENCE.pattern.replace("(", "(?:"), *map(_bounded, longest_first)]
        return spelling_names, re.compile("|".join(parts))


def _bounded(value: str) -> str:
    escaped = re.escape(value)
    return escaped if len(value) >= _MIN_LENGTH else rf"(?<!\w){escaped}(?!\w)"


def _spellings(value: str) -> set[str]:
    """How a value may appear in YAML, JSON, Python, a shell or a URL; each line of a long one (keys) by itself."""
    forms = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], value.replace("'", "''")}
    forms |= {repr(value)[1:-1], urllib.parse.quote(value, safe=""), urllib.parse.quote(value)}
    escaped = value.encode("ascii", "backslashreplace").decode()
    forms |= {escaped, re.sub(r"(?<=\\[xuU])[0-9a-f]+", lambda digits: digits[0].upper(), escaped)}
    forms |= {line.strip() for line in value.splitlines() if len(line.strip()) >= 2 * _MIN_LENGTH}
    return forms


def _is_code(name: str) -> bool:
    return name.endswith((".py", ".pyi", ".pyx", ".c", ".cc", ".cpp", ".h", ".hpp", ".rs", ".js", ".ts"))


def _reference(name: str) -> str:
    return f"${{env:{name}}}"


def _variable(path: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", path).strip("_").upper()
    return f"_{name}" if name[:1].isdigit() else name or "SECRET"


def _strings(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _strings(value, (*path, str(key)))
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _strings(value, (*path, str(index)))


def _map_strings(node: Any, function: Any) -> Any:
    if isinstance(node, str):
        return function(node)
    if isinstance(node, Mapping):
        return {key: _map_strings(value, function) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return type(node)(_map_strings(value, function) for value in node)
    return node
