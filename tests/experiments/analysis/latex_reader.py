"""As much of LaTeX as a table with booktabs rules needs. Whatever else turns up is an error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TOKEN = re.compile(r"%[^\n]*\n|\\[A-Za-z]+|\\.|[{}$&#^_~%]|[^\\{}$&#^_~%]+", re.S)
LETTERS = {
    r"\textbackslash": "\\", r"\textasciitilde": "~", r"\textasciicircum": "^", r"\textless": "<",
    r"\textgreater": ">", r"\textbar": "|",
}  # fmt: skip
ESCAPED = {rf"\{letter}": letter for letter in "{}$&#%_"}


@dataclass
class LatexTable:
    caption: str = ""
    columns: str = ""
    rows: list[list[str]] = field(default_factory=list)
    rules: list[int] = field(default_factory=list)
    """How many rows were read before each rule."""


class Reader:
    def __init__(self, text: str) -> None:
        assert "".join(TOKEN.findall(text)) == text
        self.tokens = [token for token in TOKEN.findall(text) if not token.startswith("%")]
        self.position = 0

    def next(self) -> str:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def expect(self, *wanted: str) -> None:
        for one in wanted:
            token = self.next()
            while not token.strip():
                token = self.next()
            assert token.strip() == one, f"{token!r} where {one!r} belongs"

    def group(self) -> str:
        """The text up to the brace that closes the one just read."""
        return self.text(("}",))

    def text(self, ends: tuple[str, ...]) -> str:
        parts = []
        while (token := self.next()) not in ends:
            if token == "{":
                parts.append(self.group())
            elif token == "$":
                self.expect("-", "$")
                parts.append("-")
            elif token == r"\textbf":
                self.expect("{")
                parts.append(self.group())
            elif token == r"\char":
                number = re.fullmatch(r"\d+", self.tokens[self.position])
                assert number, "a character needs its number"
                parts.append(chr(int(self.next())))
            elif token in LETTERS:
                assert self.next() + self.next() == "{}", "without an end the next letter would belong to the name"
                parts.append(LETTERS[token])
            else:
                assert token in ESCAPED or token[0] not in "\\}&#^_~%", f"{token!r} in a text"
                parts.append(ESCAPED.get(token, token))
        self.end = token
        return "".join(parts)


def read_table(text: str) -> LatexTable:
    reader, table = Reader(text), LatexTable()
    reader.expect(r"\begin", "{", "table", "}", "[t]", r"\centering", r"\caption", "{")
    table.caption = reader.group()
    reader.expect(r"\begin", "{", "tabular", "}", "{")
    table.columns = reader.group()
    while True:
        while not reader.tokens[reader.position].strip():
            reader.next()
        token = reader.tokens[reader.position]
        if token in (r"\toprule", r"\midrule", r"\bottomrule"):
            table.rules.append(len(table.rows))
            reader.next()
        elif token == r"\end":
            break
        else:
            row = [reader.text(("&", r"\\")).strip()]
            while reader.end == "&":
                row.append(reader.text(("&", r"\\")).strip())
            assert len(row) == len(table.columns)
            table.rows.append(row)
    reader.expect(r"\end", "{", "tabular", "}", r"\end", "{", "table", "}")
    assert not "".join(reader.tokens[reader.position :]).strip()
    return table
