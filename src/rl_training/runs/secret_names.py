"""Which names denote a secret, the patterns that find secrets in texts, and the spellings of a secret's value.

Words and patterns only; `redaction.py` replaces what they find.

A name is split into words at `_`, `-`, `.`, digits and camelCase, and only whole words count: `auth_token` and
`authToken` are secret, `author` and `tokenizer` are not.
"""

from __future__ import annotations

import itertools
import json
import re
import urllib.parse

_WORDS = frozenset(
    {
        *("token", "secret", "password", "passwd", "passphrase", "credential", "cred", "auth", "oauth", "bearer"),
        *("authorization", "cookie", "webhook", "dsn", "jwt", "apikey", "accesskey", "privatekey"),
    }
)
_PAIRS = frozenset(
    {
        ("api", "key"),
        ("access", "key"),
        ("private", "key"),
        ("trust", "key"),
        ("web", "hook"),
        ("pass", "word"),
        ("pass", "phrase"),
    }
)
_ENDINGS = ("password", "passwd", "token", "secret", "apikey", "accesskey")
"""Suffixes of names written as one word: PGPASSWORD, HFTOKEN."""
_SPLIT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_HINTS = ("token", "secret", "pass", "cred", "auth", "bearer", "cookie", "hook", "dsn", "jwt", "key")

REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
USERINFO = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^\s/?'\"<>]+)@")
PLAIN = re.compile(r"[-+.\d][-+.\de_]*|true|false|yes|no|on|off|null|none|nan|~|[|>][-+]?|", re.IGNORECASE)
"""Numbers, booleans, null and empty values: never secrets, whatever their key."""
_LITERAL = r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\''
KEY = re.compile(r"(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]++)[\"']?\s{0,16}[:=]\s{0,16}")
VALUE = re.compile(rf"{_LITERAL}|(?:(?:Bearer|Basic|Digest|Token) {{1,4}})?[^\s\"'#,\]}}]+")
"""KEY matches a name with its separator, VALUE what may follow it."""
HEADER = re.compile(
    r"(?<![A-Za-z0-9_-])(?P<key>(?:set-)?cookie|(?:proxy-)?authorization)(: {0,4})(?P<value>[^\s\"'$][^\r\n\"']*)",
    re.IGNORECASE,
)
"""A header line of an HTTP request: the whole rest of the line is the value."""
BEARER = re.compile(
    r"\b(?P<key>bearer)( {1,4})(?P<value>(?=[^\s\"']*[\d._~+/=])[\w.~+/=-]{8,})",
    re.IGNORECASE,
)

MIN_LENGTH = 6
"""Shorter values cannot be told from ordinary words, so they are only hidden under a key that names a secret."""


def is_secret_key(key: str) -> bool:
    """Whether a config key, flag or environment variable with this name holds a secret.

    >>> [is_secret_key(key) for key in ("WANDB_API_KEY", "accessToken", "cookies", "tokenizer", "author")]
    [True, True, True, False, False]
    """
    if not may_hold_secret(key):
        return False
    words = [word.lower() for word in _SPLIT.findall(key)]
    words = [word[:-1] if word.endswith("s") and not word.endswith("ss") else word for word in words]
    if any(word in _WORDS or word.endswith(_ENDINGS) for word in words):
        return True
    return any(pair in _PAIRS for pair in itertools.pairwise(words))


def may_hold_secret(text: str) -> bool:
    """A cheap first test: False means that `text` contains no name of a secret."""
    lowered = text.lower()
    return any(hint in lowered for hint in _HINTS)


def reference(name: str) -> str:
    """The text that replaces a secret: `${env:NAME}`."""
    return f"${{env:{name}}}"


def variable(path: str) -> str:
    """An environment variable name for the value at a path of a config."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", path).strip("_").upper()
    return f"_{name}" if name[:1].isdigit() else name or "SECRET"


def is_common(value: str) -> bool:
    """A short text, or a short number (as in MAX_TOKENS): not a secret by itself, and common in other texts."""
    return len(value) < MIN_LENGTH or (len(value) < 2 * MIN_LENGTH and PLAIN.fullmatch(value) is not None)


def bounded(value: str) -> str:
    """A regular expression for a value; a short value matches only as a whole word."""
    escaped = re.escape(value)
    return escaped if len(value) >= MIN_LENGTH else rf"(?<!\w){escaped}(?!\w)"


def spellings(value: str) -> set[str]:
    """How a value may appear in YAML, JSON, Python, a shell or a URL; also each long line of a multi-line value."""
    forms = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], value.replace("'", "''")}
    forms |= {repr(value)[1:-1], urllib.parse.quote(value, safe=""), urllib.parse.quote(value)}
    escaped = value.encode("ascii", "backslashreplace").decode()
    forms |= {escaped, re.sub(r"(?<=\\[xuU])[0-9a-f]+", lambda digits: digits[0].upper(), escaped)}
    forms |= {line.strip() for line in value.splitlines() if len(line.strip()) >= 2 * MIN_LENGTH}
    return forms
