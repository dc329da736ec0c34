/* codec_battery.h - what every codec must do, whatever its stages.  Run by codec_test.c over all
 * combinations of kind, top-k and zstd level.
 *
 * Depends on: codec.h, the test harness.  Tests only.
 */
#ifndef CODEC_BATTERY_H
#define CODEC_BATTERY_H

#include "omm/codec.h"

/* Deterministic values in [-1, 1] with a heavy tail, some zeros, ties and a -0. */
void battery_values(float *out, size_t n, uint64_t seed);

/* Every property below, over one codec and layout:
 *   round trip within the codec's bound; encode twice gives equal bytes; sizes within the maxima;
 *   decode, encode again: equal payload; every truncation refused; bit flips stay in bounds, leave
 *   `values` alone when refused, and when accepted are the one encoding of what they decode to;
 *   trailing bytes, other codecs and other layouts refused with their codes; NaN and infinity
 *   refused; every allocation failing in turn changes nothing and leaks nothing. */
void battery_run(const omm_codec *codec, const omm_layout *layout);

/* A layout of several pieces: a walk gives what decode gives, and ends at any piece. */
void battery_pieces(const omm_codec *codec, const omm_layout *layout);

#endif
