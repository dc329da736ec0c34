#!/usr/bin/env bash
# sysroot.sh - the libraries of another kind of CPU (arm64) in a folder, for a cross build.
#
#   tools/sysroot.sh DIR      fill DIR, once; a second call with the same packages does nothing
#
# Debian's packages, as apt chooses and checks them, unpacked into DIR: nothing on this system is
# installed or changed, and no root is needed.  17 MB to fetch.
# Exit codes: 0 DIR is complete, 1 with the reason on stdout (no apt, no network, no room).
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:?folder}
arch=arm64

mapfile -t names < <(awk '$1 == "build" && $2 ~ /^lib.*-dev$/ { print $2 }' tools/packages.txt)
wanted="$arch ${names[*]}"
[ "$(cat "$dir/complete" 2>/dev/null)" != "$wanted" ] || exit 0
for tool in apt-get dpkg-deb; do
    command -v $tool >/dev/null || { echo "there is no $tool here to fetch $arch libraries with"; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work" "$dir.part"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial"
: >"$work/status"
apt() { # apt's own folders stay as they are; what it would install is judged against an empty system
    apt-get -q -y -o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
        -o APT::Architecture=$arch -o APT::Architectures::=$arch -o APT::Sandbox::User= \
        -o Acquire::Retries=2 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 "$@" >>"$work/log" 2>&1
}
apt update || true # a source without this architecture is no harm; what is missing shows next
apt install --download-only --no-install-recommends "${names[@]}" || {
    echo "apt could not fetch the $arch libraries: $(grep -E '^(E|Err)' "$work/log" | tail -1)"
    exit 1
}
rm -rf "$dir.part" "$dir"
mkdir -p "$dir.part"
for package in "$work"/cache/archives/*.deb; do dpkg-deb -x "$package" "$dir.part" || exit 1; done
# Debian 13's libc has its loader in usr/lib, and another package, which is not fetched, the link from lib.
[ -e "$dir.part/lib" ] || ln -s usr/lib "$dir.part/lib"
echo "$wanted" >"$dir.part/complete"
mv "$dir.part" "$dir"
