#!/usr/bin/env bash
# packages.sh [PACKAGE ...]: installs those of Debian's packages for the tests of real programs that are missing here; by
# default all that are known below. It needs root and apt-get. Without these it prints what is missing, which is no failure:
# what needs a missing package is printed as not run, or skipped.
set -euo pipefail

# by package: a program on the PATH, or a file, by which it is known
declare -A known=(
    [kcat]=kcat                # one of the stock clients that the tests use
    [iproute2]=tc              # ip, tc and nft make the network of the chaos cases that cut links
    [nftables]=nft
    [prometheus]=promtool      # judges dashboards and alerts
    [libfaketime]='/usr/lib/*/faketime/libfaketimeMT.so.1'  # nodes with wrong clocks
    [user-mode-linux]=linux.uml  # a guest kernel, for power cuts, and the file systems on which they happen
    [e2fsprogs]=mkfs.ext4
    [xfsprogs]=mkfs.xfs
    [btrfs-progs]=mkfs.btrfs
    [postgresql]='/usr/lib/postgresql/*/bin/initdb'  # a catalog of tables
)
missing=()
for package in "${@:-${!known[@]}}"; do
    sign=${known[$package]}
    type "$sign" >/dev/null 2>&1 || compgen -G "$sign" >/dev/null || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! type apt-get >/dev/null 2>&1; then
    echo "not here, and not installed: ${missing[*]}"
    exit 0
fi
apt-get -o Acquire::Retries=3 update -qq
DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
