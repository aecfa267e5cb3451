"""`python -m raftlog_chaos.power_cut`: cut the power of a whole cluster, again and again, and check what is left.

The cluster runs in a guest kernel (Debian's user-mode-linux, which needs no root) on a disk image of its own. Stock
clients in the guest write plainly, in transactions and in groups, and report each acknowledgement to the host.
The exit code is 1 if there is a finding, and that disk is kept. It is 0 without findings, or if this machine cannot
boot a guest.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

import msgspec

from raftlog.base.disk import make_folders, write_file
from raftlog_chaos.power_cut import image, kernel
from raftlog_chaos.power_cut.campaign import Campaign, Cut, Options
from raftlog_chaos.power_cut.moments import SHARES
from raftlog_chaos.runs.rig import Unavailable

CUTS_PER_DISK: Final = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    given = _parse(arguments)
    file_systems = given.file_system or list(image.JOURNALED)
    lacking = [each for each in (kernel.lacks(), *map(image.lacks, file_systems)) if each]
    if lacking:
        sys.stdout.write("".join(f"SKIP power cuts: {each}\n" for each in lacking))
        return 0
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 31)
    options = Options(
        out=given.out,
        settings=dict(each.split("=", 1) for each in given.override),
        mount=given.mount,
        plant=given.plant,
        kind=given.kind,
    )
    make_folders(given.out)
    _say(f"{given.cuts} cuts on {', '.join(file_systems)}, seed {seed}, folders in {given.out}")
    began_at = time.monotonic()
    try:
        campaigns = _run(options, file_systems, cuts=given.cuts, seed=seed)
    except Unavailable as error:
        _say(f"SKIP power cuts: {error}")
        return 0
    for line in as_table([cut for each in campaigns for cut in each.cuts]):
        _say(line)
    _say(f"in {time.monotonic() - began_at:.0f} s")
    for each in campaigns:
        if each.failed:
            _say(f"FAILED: {each.folder} has the disk and the histories; seed {seed}")
    return int(any(each.failed for each in campaigns))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m raftlog_chaos.power_cut",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cuts", type=int, default=10, help="how many altogether (default: 10)")
    parser.add_argument(
        "--file-system",
        action="append",
        choices=tuple(image.FILE_SYSTEMS),
        help="repeatable (default: ext4, xfs, btrfs)",
    )
    parser.add_argument("--seed", type=int, help="moments and loads (default: by chance)")
    parser.add_argument("--kind", default="", choices=("", *SHARES), help="only moments of this kind")
    parser.add_argument("--cuts-per-disk", type=int, default=CUTS_PER_DISK, help=argparse.SUPPRESS)
    parser.add_argument(
        "--mount", default="", metavar="OPTIONS", help="of the guest's disk, such as commit=300"
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of every node; repeatable",
    )
    parser.add_argument(
        "--plant", default="", metavar="MODULE:FUNCTION", help="a bug, for tests: it must be found"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("power-cut-runs"), help="where each disk leaves its folder"
    )
    return parser.parse_args(arguments)


def _run(options: Options, file_systems: Sequence[str], *, cuts: int, seed: int) -> list[Campaign]:
    """Share the cuts out over disks of all file systems in turn; the first disk on which anything is found ends it."""
    campaigns: list[Campaign] = []
    done = 0
    share = min(CUTS_PER_DISK, -(-cuts // len(file_systems)))
    for number, file_system in enumerate(cycle(file_systems)):
        if done >= cuts:
            break
        campaign = Campaign(options, file_system, seed=seed + number, first=done + 1, report=_say)
        campaigns.append(campaign)
        done += len(campaign.run(min(share, cuts - done)))
        if campaign.failed:
            break
    summary = [cut for each in campaigns for cut in each.cuts]
    path = options.out / f"{time.strftime('%Y%m%d-%H%M%S')}-summary.json"
    write_file(path, msgspec.json.format(msgspec.json.encode(summary), indent=1))
    return campaigns


def as_table(cuts: Sequence[Cut]) -> list[str]:
    """Return a line for each file system, with its cuts by kind, and a line for all."""
    lines = [
        f"{'':6} {'cuts':>5} " + " ".join(f"{kind:>10}" for kind in SHARES) + f" {'missed':>6} {'found':>5}"
    ]
    names = dict.fromkeys(cut.file_system for cut in cuts)
    for name in (*names, *(("all",) if len(names) > 1 else ())):
        mine = [cut for cut in cuts if name in ("all", cut.file_system)]
        counts = " ".join(f"{sum(cut.kind == kind for cut in mine):10}" for kind in SHARES)
        missed, found = sum(cut.missed for cut in mine), sum(bool(cut.found) for cut in mine)
        lines.append(f"{name:6} {len(mine):5} {counts} {missed:6} {found:5}")
    return lines


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
