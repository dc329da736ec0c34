/* twin_rope.c - see twin_rope.h. */
#include "twin_rope.h"

#include "omm/bytes.h"
#include "twin_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct file {
    const omm_gguf *gguf;
    char arch[32];
} file;

static bool is_scaled(const file *f, const char *type) {
    char key[96], found[32] = "";
    snprintf(key, sizeof key, "%s.rope.scaling.type", f->arch);
    (void)!omm_gguf_get_text(found, sizeof found, f->gguf, key);
    return strcmp(found, type) == 0;
}

static const omm_gguf_tensor *factors_of(const file *f, bool is_long) {
    if (strcmp(f->arch, "phi3") != 0) return omm_gguf_find_tensor(f->gguf, "rope_freqs.weight");
    return omm_gguf_find_tensor(f->gguf,
                                is_long ? "rope_factors_long.weight" : "rope_factors_short.weight");
}

/* Wavelengths below context / 32 stay, above context are stretched, a ramp over pairs between. */
static double yarn(const file *f, double plain, double base, double n, double i) {
    const uint32_t context =
        twin_whole(f->gguf, f->arch, "rope.scaling.original_context_length", 0);
    const double wave = (double)context / (2.0 * acos(-1.0));
    const double low = fmax(floor(n * log(wave / 32.0) / (2.0 * log(base))), 0.0);
    const double high = fmin(ceil(n * log(wave) / (2.0 * log(base))), n - 1.0);
    const double ramp = fmin(fmax((i - low) / fmax(high - low, 0.001), 0.0), 1.0);
    return plain * (1.0 - ramp) +
           plain / twin_real(f->gguf, f->arch, "rope.scaling.factor", 1.0) * ramp;
}

double twin_rope_speed(double *magnitude, const omm_gguf *gguf, uint32_t rotated, bool is_local,
                       bool is_long, uint32_t i) {
    file f = {.gguf = gguf};
    OMM_ASSERT(omm_gguf_get_text(f.arch, sizeof f.arch, gguf, "general.architecture") == OMM_OK);
    const double n = (double)rotated;
    const bool has_base = !is_local || strcmp(f.arch, "gemma3") != 0;
    double base = has_base ? twin_real(gguf, f.arch, "rope.freq_base", 1e4) : 10000.0;
    const double alpha = twin_real(gguf, f.arch, "rope.scaling.alpha", 0.0);
    if (alpha > 0.0) base *= pow(alpha, n / (n - 2.0));
    const double plain = pow(base, -2.0 * (double)i / n);
    const omm_gguf_tensor *factors = factors_of(&f, is_long);
    *magnitude = twin_real(gguf, f.arch, "rope.scaling.attn_factor", 1.0);
    if (is_local) return plain;
    if (factors) return plain / (double)omm_get_f32(factors->data.data + 4 * (size_t)i);
    if (is_scaled(&f, "linear")) return plain / twin_real(gguf, f.arch, "rope.scaling.factor", 1.0);
    if (!is_scaled(&f, "yarn")) return plain;
    const double longer = 0.1 * log(twin_real(gguf, f.arch, "rope.scaling.factor", 1.0));
    *magnitude *= (1.0 + longer) /
                  (1.0 + twin_real(gguf, f.arch, "rope.scaling.yarn_log_multiplier", 0.0) * longer);
    return yarn(&f, plain, base, n, (double)i);
}
