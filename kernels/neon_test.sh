#!/bin/sh
# neon_test.sh NATIVE BUILD [all] - run the kernels as built for AArch64 under an emulator, and compare every hash with
# this machine's (NATIVE is kernels_print built for it).  BUILD/aarch64 is made by ./test --all.  all: plain C as
# compiled for AArch64 too, which takes longest.  Exit 77: something is missing, said on stdout.
set -eu
native=$1 build=$2
skip() {
    echo "skipped: $1"
    exit 77
}
command -v qemu-aarch64 >/dev/null || skip "no qemu-aarch64 (qemu-user)"
[ ! -s "$build/aarch64.missing" ] || skip "$(cat "$build/aarch64.missing")"
program=$build/aarch64/kernels/kernels_print
[ -x "$program" ] || skip "$program is not built: ./test --all builds it"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# hashes ISA COMMAND...: each battery's, without the name of the instruction set
hashes() {
    isa=$1
    shift
    "$@" "$isa" | sed 's/^[a-z0-9_]*: //'
}

# compare ISA [LINES], those that it differs in from one before
compare() {
    hashes "$1" qemu-aarch64 -L "$build/sysroot-arm64" "$program" >"$work/got"
    grep "${2:-.}" "$work/want" >"$work/these"
    [ -s "$work/got" ] || { echo "no results of $1"; exit 1; }
    diff "$work/these" "$work/got" || { echo "$1 differs"; exit 1; }
    echo "$1: $(wc -l <"$work/got") results equal"
}

hashes scalar "$native" >"$work/want"
compare neon
compare neon_dotprod "^q8 "
[ "${3:-}" != all ] || compare scalar
