#!/bin/sh
# neon_test.sh NATIVE [all] - compile the kernels for AArch64, run them under an emulator, and compare every
# hash with this machine's (NATIVE is kernels_print built for it).  all: plain C as compiled for AArch64 too, which
# takes longest.  Exit 77: tools are missing.
set -eu
native=$1
plain=
[ "${2:-}" != all ] || plain=scalar
here=$(cd "$(dirname "$0")" && pwd)
base=$here/../base
cross=aarch64-linux-gnu-gcc
for tool in $cross qemu-aarch64; do
    command -v $tool >/dev/null || { echo "skipped: no $tool (gcc-aarch64-linux-gnu, qemu-user)"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$native" scalar | sed 's/^[a-z0-9]*: //' >"$work/want"

sources="kernels_print kernels_battery attention_battery kernels kv kernels_scalar kernels_neon rope
    compute q8 quant quant_blocks mathd ggml rows_layout"
base_sources="bytes err mem pool clock topology kernel_files file dir sync"

# objects ARCH PATH...: compile each to $work/NAME.o, as many at a time as there are processors.
objects() {
    arch=$1
    shift
    printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} sh -c '
        "$0" -std=c11 -O2 -march="$1" -ffp-contract=off -D_GNU_SOURCE -I"$2" -I"$2/include" \
            -I"$3/include" -I"$3" -c -o "$4/$(basename "$5" .c).o" "$5"
    ' "$cross" "$arch" "$here" "$base" "$work" {}
}

# compare NAME ISA...
compare() {
    name=$1
    shift
    "$cross" -static -o "$work/kernels_print" "$work"/*.o -lm -lpthread
    for isa in "$@"; do
        qemu-aarch64 "$work/kernels_print" "$isa" | sed 's/^[a-z0-9]*: //' >"$work/got"
        [ -s "$work/got" ] || { echo "$name has no $isa results"; exit 1; }
        diff "$work/want" "$work/got" || { echo "$name $isa differs"; exit 1; }
        echo "$name $isa: $(wc -l <"$work/got") results equal"
    done
}

# The kernels first: they take longest.
set --
for name in kernels_neon kernels_scalar $(echo "$sources" | sed 's/kernels_scalar kernels_neon//'); do
    set -- "$@" "$here/$name.c"
done
for name in $base_sources; do set -- "$@" "$base/$name.c"; done
objects armv8-a "$@"
compare armv8-a $plain neon
objects armv8.2-a+dotprod "$here/kernels_neon.c" # the one with integer dot products
compare armv8.2-a+dotprod neon
