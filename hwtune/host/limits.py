"""How much of a snapshot is read: an archive may be anything, and must not cost the machine."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    #: Files, folders and links in an archive. The largest capture known to us, three machines
    #: in one, has 64,266.
    members: int = 400_000
    #: Bytes that come out of the decompression in total, kept or not.
    unpacked_bytes: int = 2 << 30
    #: Bytes of one file. /proc/interrupts of 1,024 CPUs and 2,000 interrupts is 22 MiB.
    file_bytes: int = 32 << 20
    #: Bytes held in memory, names and all; past half of it only small files (those of sysfs)
    #: are still kept.
    kept_bytes: int = 256 << 20
    #: Seconds of this process's own time for reading an archive, however busy the machine is: bzip2
    #: gives some 30 MB/s, the others more, so that a real one ends in time.
    seconds: float = 20.0
    #: Names in one folder, and names looked at in search of a tree and of texts.
    folder_names: int = 200_000
    search_names: int = 50_000
    #: Names in one folder of the machine's own, as sysfs has one for each device of a kind: the
    #: largest boxes have some thousand interrupts, functions and interfaces. Processes may be more.
    device_names: int = 20_000
    #: Texts that are looked into, bytes of one, and bytes of all.
    document_files: int = 5_000
    document_bytes: int = 16 << 20
    documents_bytes: int = 64 << 20


DEFAULT = Limits()

# Past half of ``kept_bytes``, what is larger than this is left out.
SMALL_FILE = 64 << 10
