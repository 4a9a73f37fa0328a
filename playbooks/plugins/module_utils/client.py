# Copyright: the hwtune developers
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""The installed ``hwtune``: found, called with an argument list, and understood or refused."""

import json
import os
import time

# Where the role puts it, before PATH.
PLACES = ["/opt/hwtune/bin"]
# What this collection reads: hwtune/report/published.py says when it changes.
SCHEMA_VERSION = "1"
OLDEST = (0, 1, 0)
# hwtune's exit statuses.
OK, FINDINGS = 0, 1

INSTALL = "the role hwtune.hwtune.hwtune installs it, or name it with `executable`"
UPGRADE = "install a newer hwtune (the role hwtune.hwtune.hwtune does) and run this again"


class ClientError(Exception):
    """hwtune could not be had, called or understood. The message ends with what to do; ``details`` go
    with it into the task's result."""

    def __init__(self, message, **details):
        super().__init__(message)
        self.details = details


class Client:
    """``run`` is AnsibleModule.run_command or something alike: argv -> (status, stdout, stderr)."""

    def __init__(self, executable, run, clock=time.time):
        self.executable = executable
        self._run = run
        self._clock = clock

    def version(self):
        """The version that is installed, "0.1.0". Raises ``ClientError`` for one that is too old."""
        status, said, complaint = self._call(["--version"])
        words = said.split()
        if status != OK or len(words) != 2 or words[0] != "hwtune":
            raise ClientError(
                "{} is no hwtune that works: {}; {}".format(
                    self.executable, sentence(complaint) or sentence(said) or "it said nothing", INSTALL
                )
            )
        return fit(words[1])

    def report(self, arguments):
        """(exit status, report, its text, seconds) of one command that was asked for JSON. A status of 0 or
        1 comes with a report; all else is a ``ClientError``."""
        begun = self._clock()
        status, said, complaint = self._call(arguments)
        seconds = round(self._clock() - begun, 3)
        if status not in (OK, FINDINGS):
            raise ClientError(
                self._why(status, complaint), rc=status, stderr=complaint, cmd=self.line(arguments)
            )
        return status, self._understood(said, complaint, arguments), said, seconds

    def line(self, arguments):
        return [self.executable, *arguments]

    def _call(self, arguments):
        return self._run(self.line(arguments))

    def _understood(self, said, complaint, argv):
        try:
            document = json.loads(said)
        except ValueError:
            document = None
        if not isinstance(document, dict) or "schema_version" not in document:
            raise ClientError(
                "{} ended well but printed no report: {}; {}".format(
                    " ".join(self.line(argv)), sentence(complaint) or "not a word on stderr either", INSTALL
                ),
                stdout=said[:2000],
                stderr=complaint,
                cmd=self.line(argv),
            )
        found = document["schema_version"]
        if found != SCHEMA_VERSION:
            older = numbers(str(found)) < numbers(SCHEMA_VERSION)
            step = UPGRADE if older else "install a newer collection hwtune.hwtune and run this again"
            raise ClientError(
                f"hwtune {self.version()} writes reports of schema version {found} and this collection "
                f"reads version {SCHEMA_VERSION}; {step}"
            )
        return document

    def _why(self, status, complaint):
        """One sentence, with the next step."""
        told = sentence(complaint)
        if told.startswith("hwtune: "):
            told = told[len("hwtune: ") :]
        if "there is no command" in told or told.lower().startswith("no such option"):
            return f"hwtune {self.version()} is too old for what was asked of it ({told}); {UPGRADE}"
        if "only root may" in told:
            return f"{told}: set `become: true` on this task"
        if status < 0 or status >= 128:
            return "hwtune was ended by a signal (status {}): {}".format(status, told or "it said nothing")
        return told or f"hwtune ended with {status} and said nothing; run it by hand on the host"


def find(executable, search):
    """The path of hwtune: the one that was named, or the first of the usual places and PATH. ``search``
    is AnsibleModule.get_bin_path."""
    if executable:
        if os.path.isfile(executable) and os.access(executable, os.X_OK):
            return executable
        raise ClientError(f"there is no program {executable} on this host; {INSTALL}")
    found = search("hwtune", False, PLACES)
    if not found:
        raise ClientError(
            "hwtune is not installed on this host (looked in {} and PATH); {}".format(
                ", ".join(PLACES), INSTALL
            )
        )
    return found


def fit(version):
    """The version, unless it is too old."""
    if numbers(version) < OLDEST:
        raise ClientError(
            "hwtune {} is too old for this collection, which needs {} or newer; {}".format(
                version, ".".join(map(str, OLDEST)), UPGRADE
            )
        )
    return version


def sentence(text):
    """The last line that says something, as one tidy line."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    lines = [line for line in lines if line]
    return lines[-1] if lines else ""


def numbers(version):
    """ "0.12.0rc1" -> (0, 12, 0): what is compared of a version."""
    parts = []
    for part in version.split("."):
        digits = ""
        for character in part:
            if not character.isdigit():
                break
            digits += character
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)
