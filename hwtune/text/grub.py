"""GRUB's files: the shell assignments of /etc/default/grub, the generated grub.cfg, and grubenv.

None of them is executed. What cannot be known without running it (a command's output, a branch)
makes the variable unknown, never empty.
"""

from __future__ import annotations

from typing import NamedTuple

from hwtune.text import cmdline as kernel

_BLANK = " \t"
_ENDS = "\n;&|()"
_OPENING = ("if", "case", "for", "while", "until", "{")
_CLOSING = ("fi", "esac", "done", "}")
_PASSING = ("then", "else", "elif", "do", "!")
# The function of hwtune's drop-in (templates/grub.cfg.j2), and the variable with its answer.
_WITHOUT, _LEFT = "hwtune_without", "hwtune_left"
_DECLARING = ("export", "readonly", "declare", "typeset", "local")
# Far beyond any configuration: what grows past these was made to.
_LONGEST = 1 << 13  # of a value, in characters
_DEEPEST = 20  # expansions in expansions
_MOST_EXPANDED = 1 << 20  # characters that the expansions of a file may come to
_MOST = 1000  # variables, and entries of a menu


def assign(text: str, variables: dict[str, str | None]) -> None:
    """Apply the assignments of a file that grub-mkconfig sources, in their order.

    ``variables`` is changed: None stands for a value that only a shell could tell.
    """
    _Shell(text, variables).run()


def cmdline(variables: dict[str, str | None]) -> str:
    """What 10_linux of grub-mkconfig gives the normal entry: GRUB_CMDLINE_LINUX, and after it
    GRUB_CMDLINE_LINUX_DEFAULT. Raises ``ValueError`` where one of them is not known."""
    found = []
    for name in ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"):
        value = variables.get(name, "")
        if value is None:
            raise ValueError(f"only a shell can tell what {name} is")
        found.append(value)
    return " ".join(part.strip() for part in found if part.strip())


class _Shell:
    """Reads a file of assignments as sh would, and keeps to what needs no execution."""

    def __init__(self, text: str, variables: dict[str, str | None]) -> None:
        self.text = text
        self.at = 0
        self.variables = variables
        self.lost = False  # after a command that can set anything (".", eval)
        self.depth = 0  # of compound commands: what is inside may or may not run
        self.parentheses = 0
        self.nesting = 0  # of expansions in expansions
        self.expanded = 0
        self.conditional = False  # after && or ||

    def run(self) -> None:
        words: list[tuple[str, str | None]] = []  # as written, and its value
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in _BLANK:
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif character == "#":
                self._skip_to("\n")
            elif character in _ENDS:
                self._statement(words)
                words = []
                self._separator(character)
            elif character in "<>":
                if self.text.startswith("<<", self.at):
                    self._lose()
                    return
                self.at += 1
            else:
                words.append(self._word())
        self._statement(words)

    def _separator(self, character: str) -> None:
        pair = self.text[self.at : self.at + 2]
        self.at += 2 if pair in ("&&", "||", ";;") else 1
        self.conditional = pair in ("&&", "||") or (self.conditional and character not in "\n;")
        if character == "(":
            self.parentheses += 1
        elif character == ")":  # that of a case's pattern closes nothing
            self.parentheses = max(0, self.parentheses - 1)

    def _statement(self, words: list[tuple[str, str | None]]) -> None:
        while words and words[0][0] in (*_OPENING, *_CLOSING, *_PASSING):
            keyword = words[0][0]
            words = words[1:]
            if keyword in _OPENING:
                self.depth += 1
            elif keyword in _CLOSING:
                self.depth = max(0, self.depth - 1)
        if not words:
            return
        command = words[0][0]
        if command in (".", "source", "eval"):
            self._lose()
        elif command == _WITHOUT and len(words) > 1:
            self._without([value for _, value in words[1:]])
        elif command == "unset":
            for name, _ in words[1:]:
                self._set(name, "")
        else:
            declared = words[1:] if command in _DECLARING else words
            if all(_is_assignment(raw) for raw, _ in declared):
                for raw, value in declared:
                    name, _, _ = raw.partition("=")
                    # "+=" appends in bash and is no assignment in sh, which grub-mkconfig runs in.
                    appends = name.endswith("+")
                    self._set(name.rstrip("+"), None if appends or value is None else value.partition("=")[2])

    def _without(self, values: list[str | None]) -> None:
        """A call of the function that hwtune's own drop-in defines."""
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            self._set(_LEFT, None)
            return
        kept = [word for word in kernel.words(known[0]) if kernel.name(word) not in known[1:]]
        self._set(_LEFT, " ".join(kept))

    def _set(self, name: str, value: str | None) -> None:
        uncertain = self.lost or self.depth or self.parentheses or self.conditional
        self.variables[name] = None if uncertain or (value and len(value) > _LONGEST) else value

    def _lose(self) -> None:
        self.lost = True
        for name in (*self.variables, "GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"):
            self.variables[name] = None

    def _skip_to(self, end: str) -> None:
        found = self.text.find(end, self.at)
        self.at = len(self.text) if found < 0 else found

    def _word(self, closing: str = "") -> tuple[str, str | None]:
        """One word from here on: as written and as sh would see it (None: not known). With
        ``closing`` it is the word of an expansion, which ends there and may hold blanks."""
        start = self.at
        parts: list[str] = []
        known = True
        while self.at < len(self.text):
            character = self.text[self.at]
            if closing:
                if character == closing:
                    break
            elif character in _BLANK or character in _ENDS or character in "<>":
                break
            if character == "'":
                self.at += 1
                begin = self.at
                self._skip_to("'")
                parts.append(self.text[begin : self.at])
                self.at += 1
            elif character == '"':
                self.at += 1
                known &= self._double_quoted(parts)
            elif character == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                parts.append("" if escaped == "\n" else escaped)
                self.at += 2
            elif character in "$`":
                known &= self._expansion(parts)
            else:
                parts.append(character)
                self.at += 1
        return self.text[start : self.at], "".join(parts) if known else None

    def _double_quoted(self, parts: list[str]) -> bool:
        known = True
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == '"':
                self.at += 1
                return known
            if character == "\\" and self.text[self.at + 1 : self.at + 2] in tuple('$`"\\\n'):
                escaped = self.text[self.at + 1]
                parts.append("" if escaped == "\n" else escaped)
                self.at += 2
            elif character in "$`":
                known &= self._expansion(parts)
            else:
                parts.append(character)
                self.at += 1
        return False  # the quote is never closed

    def _expansion(self, parts: list[str]) -> bool:
        """What stands for $name, ${name}, ${name:-word}, ${name:+word}; False for all else."""
        if self.text[self.at] == "`":
            self.at += 1
            self._skip_to("`")
            self.at += 1
            return False
        self.at += 1
        following = self.text[self.at : self.at + 1]
        if following == "(":
            self._skip_parentheses()
            return False
        braced = following == "{"
        self.at += braced
        begin = self.at
        while self.at < len(self.text) and (self.text[self.at].isalnum() or self.text[self.at] == "_"):
            self.at += 1
        name = self.text[begin : self.at]
        if not name or not (name[0].isalpha() or name[0] == "_"):
            if braced:
                self._inner_word()
            elif not name and following not in "$?!@*#-":
                parts.append("$")
                return True
            return False
        # A variable of grub-mkconfig's own that nothing has set is empty; of any other we know nothing.
        value = self.variables.get(name, "" if name.startswith("GRUB_") and not self.lost else None)
        if not braced:
            return self._append(parts, value)
        operator_start = self.at
        while self.at < len(self.text) and self.text[self.at] in ":-+" and self.at - operator_start < 2:
            self.at += 1
        operator = self.text[operator_start : self.at]
        word = self._inner_word()
        if operator == "" and word == "":
            return self._append(parts, value)
        if operator not in (":-", "-", ":+", "+") or value is None:
            return False
        if operator.endswith("-"):
            return self._append(parts, value or word)
        return self._append(parts, word if value else "")

    def _append(self, parts: list[str], value: str | None) -> bool:
        if value is None:
            return False
        self.expanded += len(value)
        if self.expanded > _MOST_EXPANDED:
            self._lose()
            return False
        parts.append(value)
        return True

    def _inner_word(self) -> str | None:
        """The rest of "${name...}" with its closing brace."""
        if self.nesting == _DEEPEST:
            self._lose()
            self.at = len(self.text)
            return None
        self.nesting += 1
        word = self._word("}")[1]
        self.nesting -= 1
        self.at += 1
        return word

    def _skip_parentheses(self) -> None:
        depth = 0
        while self.at < len(self.text):
            depth += {"(": 1, ")": -1}.get(self.text[self.at], 0)
            self.at += 1
            if not depth:
                return


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    name = name.removesuffix("+")
    return bool(equals and name) and name.replace("_", "a").isalnum() and not name[0].isdigit()


class Entry(NamedTuple):
    """A menu entry. ``path``: the indexes from the top of the menu to it; ``names``: for each
    step the title and the id. ``linux``: the kernel's file ("" where it boots something else);
    ``options``: its command line, with the variables that are not known still in it ("$name")."""

    path: tuple[int, ...]
    names: tuple[tuple[str, str], ...]
    linux: str
    options: str

    @property
    def title(self) -> str:
        return self.names[-1][0]


class Menu(NamedTuple):
    entries: list[Entry]
    default: str  # an index, a title or an id; "a>b" below a submenu
    bls: bool  # the entries are those of the Boot Loader Specification, not these


class _Level:
    __slots__ = ("count", "id", "index", "kind", "title")

    def __init__(self, kind: str, title: str = "", id: str = "", index: int = 0) -> None:
        self.kind, self.title, self.id, self.index, self.count = kind, title, id, index, 0


def parse_menu(text: str, environment: dict[str, str]) -> Menu:
    """A generated grub.cfg with the variables of its grubenv."""
    reader = _MenuReader(environment)
    for line in text.split("\n"):
        reader.line(line.strip())
    return Menu(reader.entries, reader.default, reader.bls)


class _MenuReader:
    """Follows a grub.cfg line by line, as grub-mkconfig lays it out: a block opens at the end of a
    line and closes on a line of its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.values = dict(environment)
        self.levels = [_Level("top")]
        self.entries: list[Entry] = []
        self.default = "0"
        self.bls = False
        self.branches = 0

    def line(self, line: str) -> None:
        word = line.split(None, 1)[0] if line else ""
        if line.endswith("{"):
            self._open(word, line)
        elif line == "}":
            if len(self.levels) > 1:
                self.levels.pop()
        elif word == "if":
            self.branches += 1
        elif word == "fi":
            self.branches = max(0, self.branches - 1)
        elif word in ("linux", "linux16", "linuxefi"):
            if self.levels[-1].kind == "menuentry" and self.entries:
                self.entries[-1] = self._entry(words(line))
        elif word == "set" and len(self.levels) == 1:
            self._set("".join(words(line)[1:2]))
        elif word == "blscfg":
            self.bls = True

    def _open(self, word: str, line: str) -> None:
        if word not in ("menuentry", "submenu") or len(self.entries) >= _MOST or len(self.levels) > _DEEPEST:
            self.levels.append(_Level("other"))
            return
        parts = words(line)
        parent = self.levels[-1]
        id = ""
        for i, part in enumerate(parts[2:-1], 2):
            if part in ("--id", "$menuentry_id_option", "${menuentry_id_option}"):
                id = parts[i + 1]
        self.levels.append(_Level(word, parts[1] if len(parts) > 1 else "", id, parent.count))
        parent.count += 1
        if word == "menuentry":
            self.entries.append(self._entry([]))

    def _entry(self, parts: list[str]) -> Entry:
        inside = [level for level in self.levels if level.kind in ("menuentry", "submenu")]
        options = " ".join(expand(_quoted(part), self.values) for part in parts[2:])
        return Entry(
            tuple(level.index for level in inside),
            tuple((level.title, level.id) for level in inside),
            parts[1] if len(parts) > 1 else "",
            " ".join(options.split()) if '"' not in options else options.strip(),
        )

    def _set(self, assignment: str) -> None:
        name, _, value = assignment.partition("=")
        if name == "default":
            self.default = _default(value, self.default, self.environment)
            return
        # What is set in a branch is not known, but for the stand-in for a lost grubenv.
        certain = self.branches == 0 or (name == "kernelopts" and name not in self.environment)
        if certain and (name in self.values or len(self.values) < _MOST):
            self.values[name] = expand(value, self.values)


def _quoted(part: str) -> str:
    """GRUB hands an argument with blanks in it to the kernel in quotes (grub-core/lib/cmdline.c)."""
    return f'"{part}"' if " " in part else part


def _default(value: str, present: str, environment: dict[str, str]) -> str:
    if "next_entry" in value:  # one boot only, in a branch of its own
        return environment.get("next_entry") or present
    if environment.get("next_entry"):
        return present
    if "saved_entry" in value:
        return environment.get("saved_entry") or "0"
    return value if "$" not in value else present


def choose(menu: Menu) -> Entry | None:
    """The entry that ``menu.default`` names; as GRUB does, the first where it names none."""
    if not menu.entries:
        return None
    candidates = menu.entries
    steps = menu.default.split(">")
    for depth, step in enumerate(steps):
        step = step.strip()
        below = [e for e in candidates if len(e.path) > depth and _is_step(step, e, depth)]
        if not below:
            return menu.entries[0]
        candidates = below
    return candidates[0]


def _is_step(step: str, entry: Entry, depth: int) -> bool:
    return step in entry.names[depth] or step == str(entry.path[depth])


def parse_environment(text: str) -> dict[str, str]:
    """grubenv: lines "name=value" after a comment, filled up with "#" (grub-core/lib/envblk.c)."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name.strip()] = value.replace("\\\\", "\\").rstrip()
    return found


def expand(text: str, values: dict[str, str]) -> str:
    """``text`` with $name and ${name} replaced where their values are known; as it is where that
    would be too long for any use."""
    if "$" not in text:
        return text
    room = _LONGEST
    parts = text.split("$")
    found = [parts[0]]
    for part in parts[1:]:
        if part.startswith("{") and "}" in part:
            name, _, rest = part[1:].partition("}")
            written = "${" + name + "}"
        else:
            length = next((i for i, c in enumerate(part) if not (c.isalnum() or c == "_")), len(part))
            name, rest = part[:length], part[length:]
            written = "$" + name
        value = values.get(name, written)
        room -= len(value)
        if room < 0:
            return text
        found.append(value + rest)
    return "".join(found)


def words(line: str) -> list[str]:
    """The words of a line of GRUB's script; quotes are taken off, variables are left in."""
    found: list[str] = []
    current: list[str] = []
    inside = ""
    started = escaped = False
    for character in line:
        if escaped:
            current.append(character)
            escaped = False
        elif character == "\\" and inside != "'":
            escaped = started = True
        elif inside:
            if character == inside:
                inside = ""
            else:
                current.append(character)
        elif character in "'\"":
            inside = character
            started = True
        elif character in _BLANK:
            if started:
                found.append("".join(current))
                current, started = [], False
        elif character == "#" and not started:
            break
        else:
            current.append(character)
            started = True
    if started:
        found.append("".join(current))
    return found
