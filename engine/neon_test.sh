#!/bin/sh
# neon_test.sh NATIVE - compile the kernels for AArch64, run them under an emulator, and compare every
# hash with this machine's (NATIVE is kernels_print built for it).  Exit 77: tools are missing.
set -eu
native=$1
here=$(cd "$(dirname "$0")" && pwd)
base=$here/../base
cross=aarch64-linux-gnu-gcc
for tool in $cross qemu-aarch64; do
    command -v $tool >/dev/null || { echo "skipped: no $tool (gcc-aarch64-linux-gnu, qemu-user)"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$native" scalar | sed 's/^[a-z0-9]*: //' >"$work/want"

# compare ARCH ISA
compare() {
    $cross -std=c11 -O2 -march=$1 -ffp-contract=off -D_GNU_SOURCE -static \
        -I"$here" -I"$here/include" -I"$base/include" -I"$base" -o "$work/kernels_print" \
        "$here"/kernels_print.c "$here"/kernels_battery.c "$here"/attention_battery.c \
        "$here"/kernels.c "$here"/kv.c \
        "$here"/kernels_scalar.c "$here"/kernels_neon.c "$here"/rope.c "$here"/compute.c \
        "$here"/q8.c "$here"/quant.c "$here"/quant_blocks.c "$here"/mathd.c "$here"/ggml.c \
        "$here"/rows_layout.c "$base"/bytes.c "$base"/err.c "$base"/mem.c \
        "$base"/pool.c "$base"/clock.c "$base"/topology.c "$base"/file.c "$base"/dir.c -lm -lpthread
    for isa in $2; do
        qemu-aarch64 "$work/kernels_print" $isa | sed 's/^[a-z0-9]*: //' >"$work/got"
        [ -s "$work/got" ] || { echo "$1 has no $isa results"; exit 1; }
        diff "$work/want" "$work/got" || { echo "$1 $isa differs"; exit 1; }
        echo "$1 $isa: $(wc -l <"$work/got") results equal"
    done
}
compare armv8-a "scalar neon"
compare armv8.2-a+dotprod neon # the one with integer dot products
