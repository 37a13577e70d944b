"""YAML text to nodes that know their line, and the one error the configuration raises.

The text is composed, never constructed: no tag of the file can make an object, and every value keeps its place until
`decode` has judged it. Messages name keys and lines. They never show a value that is, or could be, a secret: so the
parser's own snippets are not passed on.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

MAX_TEXT_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_FILE_SECRET_BYTES = 64 << 10

Node = yaml.nodes.Node
Fail = Callable[[str], Exception]
"""Makes the error for one place of the file from its message."""


class ConfigError(Exception):
    """The configuration does not work; `str(error)` is what the console shows.

    `message` says what is wrong and what to do, `path` names the key (`providers.openai.timeouts.idle`), `line` counts
    from 1, `file` is the name the text was read under.
    """

    def __init__(self, message: str, path: str = "", line: int | None = None, file: str = "") -> None:
        where = f"{file}:{line}" if file and line else file or (f"line {line}" if line else "")
        super().__init__(": ".join(part for part in (where, path, message) if part))
        self.message = message
        self.path = path
        self.line = line
        self.file = file

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, str, int | None, str]]:
        return ConfigError, (self.message, self.path, self.line, self.file)


def read_text(path: Path) -> str:
    """The text of a configuration file.

    Errors: ConfigError when it cannot be read, is over 1 MiB or is not UTF-8. A byte order mark is dropped.
    """
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            raise ConfigError("is a pipe; one that nobody writes to would be waited for", file=str(path))
        with path.open("rb") as file:
            raw = file.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or type(error).__name__}", file=str(path)) from None
    if len(raw) > MAX_TEXT_BYTES:
        raise ConfigError("is over 1 MiB; that is no configuration", file=str(path))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8; save it as UTF-8", line=line, file=str(path)) from None


class _Loader(yaml.SafeLoader):
    """A safe loader whose nesting is bounded before Python's own stack is."""

    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        if self.depth >= MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=mark)
        self.depth += 1
        try:
            node = super().compose_node(parent, index)
            if isinstance(node, yaml.ScalarNode) and any("\ud800" <= char <= "\udfff" for char in node.value):
                raise yaml.MarkedYAMLError(problem="half a character (a lone surrogate)", problem_mark=node.start_mark)
            return node
        finally:
            self.depth -= 1


def compose(text: str, file: str) -> Node | None:
    """The root node of the one document in `text`; None when there is nothing in it.

    Errors: ConfigError for anything that is not YAML, with its line.
    """
    text = text.removeprefix("\N{BYTE ORDER MARK}")
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(_say(error, text), line=mark.line + 1 if mark else None, file=file) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError("a character that YAML does not allow", line=line, file=file) from None
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError):
        # ValueError: PyYAML converts some escapes and numbers without looking (`"\UFFFFFFFF"`, `%YAML 99…9`).
        raise ConfigError("is not YAML that can be read", file=file) from None


def _say(error: yaml.MarkedYAMLError, text: str) -> str:
    problem = error.problem or "not YAML"
    if flow := _say_of_braces(error, text):
        return flow
    if "alias" in problem:  # it would print the word after the *, which may be the start of a password
        return "an alias (*name) without its anchor (&name); put quotes around a value that begins with *"
    if "tab" in problem or "'\\t'" in problem:
        return "a tab where YAML wants spaces; indent with spaces"
    if "cannot start any token" in problem:
        return "a value that begins with a character that YAML reserves (@ ` % or the like); put quotes around it"
    if "mapping values are not allowed" in problem:
        return "not YAML here: a second ':' on the line, or wrong indentation; quote values that hold ': '"
    if "nested too deeply" in problem:
        return f"nested more than {MAX_DEPTH} levels deep"
    if "single document" in (error.context or "") or "another document" in problem:
        return "a second document (---); a configuration is one document"
    # Words like "tag handle '!x'" quote the text: keep the sentence, drop the quotation.
    return "not YAML here: " + re.sub(r"'(?!<)[^']{2,}'|\"[^\"]{2,}\"", "…", problem)


def _say_of_braces(error: yaml.MarkedYAMLError, text: str) -> str:
    """What is wrong within `{ }` or `[ ]`; empty where it is something else."""
    place, opened = error.problem_mark, error.context_mark
    if not place or not opened or not (error.context or "").startswith("while parsing a flow"):
        return ""
    if found := _UNQUOTED.match(text, max(0, place.index - 1)):
        return f'inside {{ }} and [ ] write quotes around a variable: "${{{found[1] or "NAME"}}}"'
    if "<stream end>" in (error.problem or ""):
        # Where a value is missing the mark stands behind its bracket, else at it.
        *_, last = [None, *_BRACKET.finditer(text, 0, opened.index + 1)]
        return f"a {last[0]} of line {text.count(chr(10), 0, last.start()) + 1} is not closed" if last else ""
    if place.line > opened.line:
        return f"a {text[opened.index]} of line {opened.line + 1} is not closed, or a comma is missing before this"
    return ""


_BRACKET = re.compile(r"(?<!\$)[{[]")
_UNQUOTED = re.compile(r"\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\})?")
_VARIABLE = re.compile(r"(\$?)\$\{([^}]*)(\}?)")
_REFERENCE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def expand(text: str, env: Mapping[str, str], fail: Fail, otherwise: str = "") -> str:
    """`text` with `${VAR}` and `${VAR:-default}` replaced; `$${` stands for a literal `${`.

    A variable that is not set may be given as `VAR_FILE`, the path of a file that holds its value. As in a shell, `:-`
    also covers a variable that is set and empty. `otherwise` is one more way out where a variable is not set.
    Errors: whatever `fail` makes, for a variable that is not set and has no default, or a broken reference.
    """
    if "${" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        reference = _REFERENCE.fullmatch(match[2])
        if not match[3] or reference is None or "${" in match[2]:
            raise fail("a reference that is neither ${NAME} nor ${NAME:-default}; write $${ for a literal ${")
        name, default = reference.group(1, 2)
        value = variable(name, env, fail)
        if value is None or (value == "" and default is not None):
            if default is None:
                ways = f"set it, or write ${{{name}:-default}}{otherwise}"
                raise fail(f"the environment variable {name} is not set; {ways}")
            return default
        return value

    return _VARIABLE.sub(replace, text)


def variable(name: str, env: Mapping[str, str], fail: Fail) -> str | None:
    """The value of an environment variable, from `NAME` itself or else from the file that `NAME_FILE` names."""
    value = env.get(name)
    if value is None and env.get(f"{name}_FILE"):
        value = read_secret(Path(env[f"{name}_FILE"]), f"{name}_FILE", fail)
    return value


def read_secret(path: Path, what: str, fail: Fail) -> str:
    """What a secret file holds, without the white space around it; `what` names the option in messages."""
    if path.exists() and not path.is_file():
        raise fail(f"{what}: {path} is not a file")  # a pipe that nobody writes to would be waited for
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_SECRET_BYTES + 1)
        if len(raw) > MAX_FILE_SECRET_BYTES:
            raise fail(f"{what}: {path} is over 64 KiB; that is no secret")
        text = raw.decode("utf-8-sig").strip()
    except OSError as error:
        raise fail(f"{what}: {path} cannot be read: {error.strerror or type(error).__name__}") from None
    except (UnicodeDecodeError, ValueError):
        raise fail(f"{what}: {path} is not UTF-8 text") from None
    if not text:
        raise fail(f"{what}: {path} is empty")
    return text
