#!/bin/sh
# same_bytes_elsewhere.sh WHERE TEST BUILD - the runs of same_bytes_test and full_test (all weights) on a processor
# that is not this one.
#
#   no_fma       plain C, with the C library's fma in software (TEST, native; glibc's tunables hide the instruction)
#   no_fma_full  the same of BUILD/release/train/full_test, which ./test --all builds
#   nehalem      BUILD/clang/train/same_bytes_test under an emulated x86-64 of 2008, which has neither AVX nor fma;
#                without sanitizers, whose memory the emulator does not have
#   aarch64      BUILD/aarch64/train under an emulator: every run in NEON but those whose optimiser alone is another, one in
#                plain C, two of full_test; ./test --all builds it
#   aarch64_full the others there
#
# Each run meets its digest, of tests/golden/train.digests or of full_test.  Exit 77: something is missing, said on
# stdout.
set -eu
test=$2 build=$3
skip() {
    echo "skipped: $1"
    exit 77
}
emulator() { command -v "$1" >/dev/null || skip "no $1 (qemu-user)"; }
built() { [ -x "$1" ] || skip "$1 is not built: ./test --all builds it"; }
hide_fma() {
    [ "$(uname -m)" = x86_64 ] || skip "glibc's fma is chosen by its tunables on x86-64 only"
    export GLIBC_TUNABLES=glibc.cpu.hwcaps=-FMA,-FMA4
    # What the program's own loader takes for usable of CPUID leaf 1, ecx: bit 12 is fma.
    loader=$(ldd "$test" | grep -o '/[^ ]*/ld-[^ ]*' | head -n 1)
    usable=$("$loader" --list-diagnostics | sed -n 's/^x86.cpu_features.features\[0x0\].active\[0x2\]=//p')
    [ -n "$usable" ] || skip "this C library does not say which instructions it uses"
    if [ $((usable & 0x1000)) -ne 0 ]; then
        echo "the tunable did not hide fma from the C library: $usable"
        exit 1
    fi
}

# Runs a test, which says whose fma plain C has; it must be the C library's.
calls_fma() {
    said=$("$@") || { code=$?; echo "$said"; exit $code; }
    echo "$said"
    case "$said" in
    *"plain C: fma of the C library"*) ;;
    *)
        echo "plain C used the processor's fma"
        exit 1
        ;;
    esac
}

case "$1" in
no_fma)
    hide_fma
    calls_fma "$test" scalar llama-f16-core qwen2-f32-yarn-untied gemma2-f32-short
    ;;
no_fma_full)
    test=$build/release/train/full_test
    built "$test"
    hide_fma
    calls_fma "$test" scalar adamw-short
    ;;
nehalem)
    emulator qemu-x86_64
    [ "$(uname -m)" = x86_64 ] || skip "the test is not built for x86-64"
    test=$build/clang/train/same_bytes_test
    built "$test"
    if qemu-x86_64 -cpu Nehalem "$test" avx2 llama-f16-adamw >/dev/null 2>&1; then
        echo "the emulated processor has AVX2"
        exit 1
    fi
    calls_fma qemu-x86_64 -cpu Nehalem "$test" scalar llama-f16-core
    ;;
aarch64 | aarch64_full)
    emulator qemu-aarch64
    [ ! -s "$build/aarch64.missing" ] || skip "$(cat "$build/aarch64.missing")"
    other=$build/aarch64/train
    built "$other/same_bytes_test"
    built "$other/full_test"
    emulated() { qemu-aarch64 -L "$build/sysroot-arm64" "$@"; }
    optimizers="llama-f16-adamw-lora-plus llama-f16-sgd-nesterov llama-f16-adafactor llama-f16-adafactor-relative"
    if [ "$1" = aarch64_full ]; then
        # shellcheck disable=SC2086 # names
        emulated "$other/same_bytes_test" neon $optimizers
        emulated "$other/full_test" neon adamw sgd adafactor galore
    else
        # shellcheck disable=SC2086
        emulated "$other/same_bytes_test" neon except $optimizers
        emulated "$other/same_bytes_test" scalar gemma2-f32-short
        emulated "$other/full_test" neon adamw-short muon
    fi
    ;;
*)
    echo "no_fma, no_fma_full, nehalem, aarch64 or aarch64_full, not '$1'"
    exit 2
    ;;
esac
