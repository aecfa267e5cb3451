"""The options of produce and consume, with kcat's letters and, where they are natural, Apache Kafka's long names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from raftlog.cli.verb import complete_topic

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

# --- of both

TopicName = Annotated[str, typer.Option("--topic", "-t", autocompletion=complete_topic)]
Delimiter = Annotated[str, typer.Option("--delimiter", "-D", help="what stands after each message")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="say nothing but failures")]

# --- of produce

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILE]...", help="each is one record; with -l, one file of many (default: stdin)"
    ),
]
ToPartition = Annotated[
    int, typer.Option("--partition", "-p", help="-1: by key as the Java client hashes, else evenly")
]
SplitAt = Annotated[str | None, typer.Option("--key-delimiter", "-K", help="what separates key and value")]
Key = Annotated[str | None, typer.Option("--key", "-k", help="a key for those that bring none")]
Headers = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="of every record")
]
Codec = Annotated[str, typer.Option("--compression", "-z", "--compression-codec", help=" ".join(CODECS))]
Lines = Annotated[bool, typer.Option("--lines", "-l", help="split the file as standard input")]
SendCount = Annotated[int, typer.Option("--count", "-c", min=0, help="stop after so many; 0: never")]
Tee = Annotated[bool, typer.Option("--tee", "-T", help="print messages that are sent")]
SendNulls = Annotated[bool, typer.Option("--null", "-Z", help="empty keys and values are null")]
Acks = Annotated[str, typer.Option("--acks", help="what is waited for: 0, 1 or all")]

# --- of consume

Subscribed = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", help="with -G: to subscribe to", autocompletion=complete_topic),
]
Group = Annotated[str, typer.Option("--group", "-G", help="share the partitions in this group")]
FromPartition = Annotated[int, typer.Option("--partition", "-p", help="-1: all")]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        "--offset",
        "-o",
        help="beginning, end, stored, N, -N (the last N of each partition), s@MS or e@MS (from, until a time)",
    ),
]
FromBeginning = Annotated[bool, typer.Option("--from-beginning", help="-o beginning")]
ReadCount = Annotated[
    int, typer.Option("--count", "-c", "--max-messages", min=0, help="stop after so many; 0: never")
]
ExitAtEnd = Annotated[bool, typer.Option("--exit-at-end", "-e", help="stop at the partitions' end")]
IdleMs = Annotated[int, typer.Option("--timeout-ms", min=0, help="stop when nothing comes for so long")]
Format = Annotated[
    str, typer.Option("--format", "-f", help="%t %p %o %k %s %h %T, %K %S %R lengths; \\n \\t \\xNN")
]
Json = Annotated[bool, typer.Option("--json", "-J", help="kcat's JSON envelope")]
PrintKeys = Annotated[
    str | None, typer.Option("--key-delimiter", "-K", help="print keys, and this after them")
]
Unpack = Annotated[
    list[str] | None,
    typer.Option("-s", metavar="[key=|value=]PACK", help="numbers in binary: < > b B h H i I q Q c s $"),
]
PrintNulls = Annotated[bool, typer.Option("--null", "-Z", help="print NULL for empty keys and values")]
Unbuffered = Annotated[bool, typer.Option("--unbuffered", "-u", help="flush each record")]
CarryOn = Annotated[bool, typer.Option("--no-exit-on-error", "-E", help="carry on after errors")]
Isolation = Annotated[str, typer.Option("--isolation-level", help="read_committed or read_uncommitted")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="tell where partitions end")]
