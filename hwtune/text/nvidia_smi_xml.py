"""``nvidia-smi -q -x``: the same log as XML.

Read with expat as a stream, so that a text that was cut off still tells what it holds. A document
type with an internal subset is refused: nvidia-smi writes none, and entities are how a hostile
document grows.
"""

from __future__ import annotations

from hwtune.text.nvidia_smi_q import SmiGpu, SmiLog, SmiProcess, described

_DEEPEST = 32
_LONGEST = 1000
# Lists of hundreds of clocks and the parts of a partitioned GPU: nothing here asks about them.
_SKIPPED = ("supported_clocks", "mig_devices", "accounted_processes")


def parse(text: str) -> SmiLog:
    """Paths are those of the elements below ``gpu``, joined by "/". Raises ``ValueError`` for what
    is not such a log, or carries declarations of its own."""
    from xml.parsers import expat

    reader = _Reader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.EntityDeclHandler = reader.declaration
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        # Cut off: what was read until here is as true as before.
        if not reader.gpus:
            raise ValueError(f"not an XML log of nvidia-smi ({error})") from None
    if not reader.seen:
        raise ValueError("no nvidia_smi_log element")
    return SmiLog(
        reader.top.get("driver_version", "").partition(" ")[0],
        reader.top.get("cuda_version", ""),
        _count(reader.top.get("attached_gpus", "")),
        [gpu for gpu in reader.gpus if gpu.values],
    )


class _Reader:
    def __init__(self) -> None:
        self.seen = False
        self.top: dict[str, str] = {}
        self.gpus: list[SmiGpu] = []
        self.path: list[str] = []
        self.text: list[str] = []
        self.length = 0

    def doctype(self, name: str, system: str | None, public: str | None, internal: bool) -> None:
        if internal:
            raise ValueError("its document type declares things of its own")

    def declaration(self, *details: object) -> None:
        raise ValueError("it declares entities")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.path) >= _DEEPEST:
            raise ValueError("its elements are nested too deep")
        if not self.path:
            self.seen = name == "nvidia_smi_log"
        elif len(self.path) == 1 and name == "gpu":
            self.gpus.append(SmiGpu(attributes.get("id", ""), {}, []))
        elif name == "process_info" and self._in_gpu():
            self.gpus[-1].processes.append(SmiProcess(-1, "", "", ""))
        self.path.append(name)
        self.text, self.length = [], 0

    def characters(self, text: str) -> None:
        if self.length < _LONGEST:
            self.text.append(text)
            self.length += len(text)

    def end(self, name: str) -> None:
        value = "".join(self.text).strip()
        self.text, self.length = [], 0
        if value and self.seen:
            self._value(value)
        elif name == "processes" and len(self.path) == 3 and self._in_gpu() and not self.gpus[-1].processes:
            self.gpus[-1].values.setdefault("processes", "")  # nothing runs, which is worth knowing
        if name == "process_info" and self._in_gpu() and self.gpus[-1].processes[-1].pid < 0:
            self.gpus[-1].processes.pop()
        self.path.pop()

    def _in_gpu(self) -> bool:
        return bool(self.gpus) and len(self.path) > 1 and self.path[1] == "gpu"

    def _value(self, value: str) -> None:
        if len(self.path) == 2:
            self.top.setdefault(self.path[1], value)
        elif self._in_gpu() and not any(name in _SKIPPED for name in self.path[2:-1]):
            if "process_info" in self.path[2:-1]:
                self._process(value)
            else:
                self.gpus[-1].values.setdefault("/".join(self.path[2:]), value)

    def _process(self, value: str) -> None:
        processes = self.gpus[-1].processes
        if not processes:
            return
        if self.path[-1] == "pid":
            if value.isdecimal():
                processes[-1] = processes[-1]._replace(pid=int(value))
        else:
            processes[-1] = described(processes[-1], self.path[-1], value)


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
