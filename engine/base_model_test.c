/* base_model_test.c - the shipped base model has the loss on valid.txt that its README states:
 * 0.4825 nats per token, each document on its own, special tokens read as such. */
#include "omm/mem.h"
#include "omm/session.h"
#include "omm/tokenizer.h"
#include "omm_test.h"
#include "q8_cache.h"

#include <math.h>
#include <string.h>

static const double STATED_LOSS = 0.4825;
static const double STATED_DIGITS = 0.00005; /* four digits are stated */
static const size_t STATED_TOKENS = 53618;

static const char *path_of(const char *name) {
    static char path[OMM_PATH_MAX];
    const char *root = getenv("OMM_SOURCE_DIR");
    CHECK(root != NULL);
    CHECK(snprintf(path, sizeof path, "%s/scenarios/base/%s", root, name) < (int)sizeof path);
    return path;
}

static double loss_of(omm_session *session, const omm_tokens *ids, uint32_t separator) {
    double sum = 0.0;
    size_t first = 0, predicted = 0;
    for (size_t i = 0; i < ids->count; i++) {
        if (ids->ids[i] != separator && i + 1 < ids->count) continue;
        double part = 0.0;
        omm_session_truncate(session, 0);
        CHECK_OK(omm_session_nll(&part, NULL, session, ids->ids + first, i + 1 - first));
        sum += part;
        predicted += i - first;
        first = i + 1;
    }
    return sum / (double)predicted;
}

int main(void) {
    omm_gguf gguf;
    omm_model model;
    omm_tokenizer *tokenizer = NULL;
    CHECK_OK(omm_gguf_open(&gguf, path_of("openmeshmind-tiny-F16.gguf")));
    CHECK_OK(omm_model_load(&model, &gguf));
    CHECK_OK(omm_tokenizer_open(&tokenizer, &gguf));
    omm_gguf_close(&gguf);

    omm_buf text;
    omm_tokens ids;
    omm_buf_init(&text, 1 << 20);
    omm_tokens_init(&ids, 1 << 20);
    CHECK_OK(omm_file_read(&text, path_of("valid.txt")));
    CHECK_OK(omm_tokenizer_encode(&ids, tokenizer, omm_buf_view(&text), OMM_TOKENIZE_SPECIAL));
    CHECK_EQ(ids.count, STATED_TOKENS);

    omm_isa isa;
    omm_compute c;
    omm_pool *pool = NULL;
    omm_session *session = NULL;
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_pool_open(&pool, omm_cpu_count() < 4 ? omm_cpu_count() : 4));
    CHECK_OK(omm_compute_init(&c, pool, isa));
    CHECK_OK(omm_session_open(&session, &c, &model, NULL, NULL));
    double loss = loss_of(session, &ids, omm_tokenizer_special(tokenizer, "<|endoftext|>"));
    printf("loss %.6f\n", loss);
    CHECK(fabs(loss - STATED_LOSS) < STATED_DIGITS);
    const double kl = q8_cache_kl(&c, &model, ids.ids, 512);
    printf("divergence of a Q8_0 cache %.2e\n", kl);
    CHECK(kl > 0.0 && kl < Q8_CACHE_KL_MAX);

    omm_session_close(session);
    omm_compute_fini(&c);
    omm_pool_close(pool);
    omm_tokens_fini(&ids);
    omm_buf_fini(&text);
    omm_tokenizer_close(tokenizer);
    omm_model_fini(&model);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
