"""The options of produce and consume, with kcat's letters and, where they are natural, Apache Kafka's long names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from raftlog.cli.cluster_command import complete_topic

ACKS: Final = ("accept", "release", "reject")
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

# --- of both

TopicName = Annotated[
    str, typer.Option("--topic", "-t", metavar="TOPIC", help="of the records", autocompletion=complete_topic)
]
Delimiter = Annotated[
    str, typer.Option("--delimiter", "-D", metavar="TEXT", help="separator after each message")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print only failures")]

# --- of produce

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE", help="each is one record; with -l, one file of many (default: stdin)"),
]
ToPartition = Annotated[
    int,
    typer.Option(
        "--partition",
        "-p",
        metavar="N",
        help="-1: by key as the Java client hashes; without a key in turn, some 16 KB to each partition",
    ),
]
SplitAt = Annotated[
    str | None, typer.Option("--key-delimiter", "-K", metavar="TEXT", help="between key and value")
]
Key = Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="key of messages without a key")]
Headers = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="of every record")
]
Codec = Annotated[str, typer.Option("--compression", "-z", "--compression-codec", help=" ".join(CODECS))]
Lines = Annotated[bool, typer.Option("--lines", "-l", help="split the file as standard input")]
SendCount = Annotated[
    int, typer.Option("--count", "-c", metavar="N", min=0, help="stop after this many messages; 0: never")
]
Tee = Annotated[bool, typer.Option("--tee", "-T", help="print messages that are sent")]
SendNulls = Annotated[bool, typer.Option("--null", "-Z", help="empty keys and values are null")]
Acks = Annotated[str, typer.Option("--acks", metavar="0|1|all", help="what is waited for: 0, 1 or all")]

# --- of consume

Subscribed = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="with -G: to subscribe to", autocompletion=complete_topic),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-G",
        metavar="GROUP",
        help="share the partitions in this group; a new one begins at the end, or with -X auto.offset.reset=earliest "
        "at the beginning",
    ),
]
Share = Annotated[
    str | None,
    typer.Option(
        "--share",
        metavar="GROUP",
        help="take records as a member of this share group (a queue), one of several",
    ),
]
Ack = Annotated[
    str,
    typer.Option(
        "--ack",
        metavar="|".join(ACKS),
        help="of a share group: records are done; given back at the end (with -e or -c); or never delivered again",
    ),
]
FromPartition = Annotated[int, typer.Option("--partition", "-p", metavar="N", help="-1: all")]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        "--offset",
        "-o",
        metavar="WHERE",
        help="beginning, end, stored, N, -N (the last N of each partition), s@MS or e@MS (from, until a time)",
    ),
]
FromBeginning = Annotated[bool, typer.Option("--from-beginning", help="-o beginning")]
ReadCount = Annotated[
    int,
    typer.Option(
        "--count", "-c", "--max-messages", metavar="N", min=0, help="stop after this many messages; 0: never"
    ),
]
ExitAtEnd = Annotated[bool, typer.Option("--exit-at-end", "-e", help="stop at the partitions' end")]
IdleMs = Annotated[
    int, typer.Option("--timeout-ms", metavar="MS", min=0, help="stop after this time without messages")
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="TEXT",
        help="%t %p %o %k %s %h %T, %d deliveries, %K %S %R lengths; \\n \\t \\xNN",
    ),
]
Json = Annotated[bool, typer.Option("--json", "-J", help="kcat's JSON envelope")]
PrintKeys = Annotated[
    str | None, typer.Option("--key-delimiter", "-K", metavar="TEXT", help="print keys, and this after them")
]
Unpack = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--decode",
        metavar="[key=|value=]PACK",
        help="numbers in binary: < > b B h H i I q Q c s $; or registry: as JSON by the schemas of the registry",
    ),
]
Registry = Annotated[
    str,
    typer.Option(
        "--registry",
        "-r",
        metavar="URL",
        envvar="RAFTLOG_REGISTRY",
        show_default=False,
        help="with -s registry: the schema registry; otherwise the context's, or that of the brokers",
    ),
]
PrintNulls = Annotated[bool, typer.Option("--null", "-Z", help="print NULL for empty keys and values")]
Unbuffered = Annotated[bool, typer.Option("--unbuffered", "-u", help="flush each record")]
CarryOn = Annotated[bool, typer.Option("--no-exit-on-error", "-E", help="carry on after errors")]
Isolation = Annotated[str, typer.Option("--isolation-level", metavar="LEVEL", help="read_(un)committed")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="print when a partition's end is reached")]
