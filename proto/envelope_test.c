#include "omm/envelope.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

static omm_key key_of(uint64_t n) {
    omm_key key;
    omm_seed seed = omm_seed_from_u64(n);
    omm_key_from_seed(&key, &seed);
    return key;
}

static void seal(omm_buf *out, omm_bytes payload) {
    omm_key key = key_of(1);
    omm_buf_init(out, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_envelope_seal(out, OMM_CONTEXT_OFFER, payload, &key));
}

static void test_round_trip(void) {
    static const size_t sizes[] = {1, 2, 127, 128, 129, 1000, 16383, 16384, 262006};
    static uint8_t payload[262006];
    for (size_t i = 0; i < sizeof payload; i++) payload[i] = (uint8_t)(i * 13);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        omm_bytes view = omm_bytes_of(payload, sizes[i]);
        omm_buf out, again;
        omm_envelope e;
        omm_key key = key_of(1);
        seal(&out, view);
        seal(&again, view);
        CHECK(omm_bytes_equal(omm_buf_view(&out), omm_buf_view(&again)));
        CHECK_OK(omm_envelope_open_as(&e, OMM_CONTEXT_OFFER, omm_buf_view(&out)));
        CHECK(omm_bytes_equal(e.payload, view));
        CHECK(e.payload.data > out.data && e.payload.data < out.data + out.size); /* borrowed */
        CHECK(omm_public_key_equal(&e.key, &key.public_key));
        omm_buf_clear(&again);
        CHECK_OK(omm_envelope_encode(&again, &e));
        CHECK(omm_bytes_equal(omm_buf_view(&out), omm_buf_view(&again)));
        omm_buf_fini(&again);
        omm_buf_fini(&out);
    }
}

/* Written by an independent encoder; the signature is Ed25519 over context || payload. */
static void test_golden(void) {
    uint8_t message[OMM_CONTEXT_BYTES + 5] = {0};
    omm_bytes payload = omm_bytes_str("hello");
    omm_key key = key_of(1);
    omm_buf out;
    seal(&out, omm_bytes_str("hello"));
    CHECK_EQ(out.size, 34 + 7 + 34 + 66);
    snprintf((char *)message, OMM_CONTEXT_BYTES, "%s", "omm.offer.v1");
    memcpy(message + OMM_CONTEXT_BYTES, payload.data, payload.size);
    omm_signature sig = omm_sign(&key, omm_bytes_of(message, sizeof message));
    CHECK(memcmp(out.data, "\x0a\x20omm.offer.v1\0", 15) == 0);
    CHECK(memcmp(out.data + 34, "\x12\x05hello\x1a\x20", 9) == 0);
    CHECK(memcmp(out.data + 43, key.public_key.b, 32) == 0);
    CHECK(memcmp(out.data + 75, "\x22\x40", 2) == 0);
    CHECK(memcmp(out.data + 77, sig.b, 64) == 0);
    omm_buf_fini(&out);
}

static void test_contexts(void) {
    for (unsigned i = OMM_CONTEXT_POLL; i <= OMM_CONTEXT_BASE; i++) {
        omm_key key = key_of(1);
        omm_envelope e;
        omm_buf out;
        omm_buf_init(&out, 1000);
        CHECK_OK(omm_envelope_seal(&out, (omm_context)i, omm_bytes_str("x"), &key));
        for (unsigned want = OMM_CONTEXT_POLL; want <= OMM_CONTEXT_BASE; want++) {
            CHECK_ERR(omm_envelope_open_as(&e, (omm_context)want, omm_buf_view(&out)),
                      want == i ? OMM_OK : OMM_ERR_REFUSED_CONTEXT);
        }
        omm_buf_fini(&out);
    }
}

static bool is_refusal(omm_err err) {
    return err == OMM_ERR_REFUSED_FORMAT || err == OMM_ERR_REFUSED_SIZE ||
           err == OMM_ERR_REFUSED_SIGNATURE;
}

static void test_tamper(void) {
    omm_buf out;
    omm_envelope e;
    seal(&out, omm_bytes_str("tokens=40000"));
    for (size_t bit = 0; bit < 8 * out.size; bit++) {
        out.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(is_refusal(omm_envelope_open_as(&e, OMM_CONTEXT_OFFER, omm_buf_view(&out))));
        out.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t n = 0; n < out.size; n++) {
        CHECK(is_refusal(omm_envelope_open_as(&e, OMM_CONTEXT_OFFER, omm_bytes_of(out.data, n))));
    }
    CHECK_OK(omm_envelope_open_as(&e, OMM_CONTEXT_OFFER, omm_buf_view(&out)));
    CHECK_OK(omm_buf_append(&out, "", 1));
    CHECK_ERR(omm_envelope_open(&e, omm_buf_view(&out)), OMM_ERR_REFUSED_FORMAT);
    omm_buf_fini(&out);
}

/* Signed by one key, presented with another; or not signed at all. */
static void test_forgeries(void) {
    omm_buf out, forged;
    omm_envelope e, opened;
    omm_key other = key_of(2);
    seal(&out, omm_bytes_str("payload"));
    omm_buf_init(&forged, 1000);
    CHECK_OK(omm_envelope_open(&e, omm_buf_view(&out)));
    e.key = other.public_key;
    CHECK_OK(omm_envelope_encode(&forged, &e));
    CHECK_ERR(omm_envelope_open_as(&opened, OMM_CONTEXT_OFFER, omm_buf_view(&forged)),
              OMM_ERR_REFUSED_SIGNATURE);
    CHECK_OK(omm_envelope_open(&e, omm_buf_view(&out)));
    e.is_signed = false;
    omm_buf_clear(&forged);
    CHECK_OK(omm_envelope_encode(&forged, &e));
    CHECK_OK(omm_envelope_open(&opened, omm_buf_view(&forged)));
    CHECK(!opened.is_signed);
    CHECK_ERR(omm_envelope_verify(&opened, OMM_CONTEXT_OFFER), OMM_ERR_REFUSED_SIGNATURE);
    omm_buf_fini(&forged);
    omm_buf_fini(&out);
}

/* The same fields in another spelling, and fields of a wrong size. */
static void test_spellings(void) {
    omm_buf out, other;
    omm_envelope e;
    seal(&out, omm_bytes_str("hello"));
    omm_buf_init(&other, 1000);
    CHECK_OK(omm_buf_append(&other, out.data, 35)); /* the payload's length as two bytes */
    CHECK_OK(omm_buf_append(&other, "\x85\0", 2));
    CHECK_OK(omm_buf_append(&other, out.data + 36, out.size - 36));
    CHECK_ERR(omm_envelope_open(&e, omm_buf_view(&other)), OMM_ERR_REFUSED_FORMAT);
    omm_buf_clear(&other); /* payload before context */
    CHECK_OK(omm_buf_append(&other, out.data + 34, 7));
    CHECK_OK(omm_buf_append(&other, out.data, 34));
    CHECK_OK(omm_buf_append(&other, out.data + 41, out.size - 41));
    CHECK_ERR(omm_envelope_open(&e, omm_buf_view(&other)), OMM_ERR_REFUSED_FORMAT);
    omm_buf_clear(&other); /* no payload */
    CHECK_OK(omm_buf_append(&other, out.data, 34));
    CHECK_OK(omm_buf_append(&other, out.data + 41, out.size - 41));
    CHECK_ERR(omm_envelope_open(&e, omm_buf_view(&other)), OMM_ERR_REFUSED_SIZE);
    CHECK_ERR(omm_envelope_open(&e, omm_bytes_of(out.data, 41)), OMM_ERR_REFUSED_FORMAT);
    omm_buf_fini(&other);
    omm_buf_fini(&out);
}

/* Context, key and signature have one size each; where they have another, what follows is not where it is looked for. */
static void test_field_sizes(void) {
    static const struct {
        const char *name;
        size_t length, size; /* where the length stands, and what it is */
    } fields[] = {{"context", 1, 32}, {"key", 42, 32}, {"signature", 76, 64}};
    omm_buf out, other;
    omm_envelope e;
    seal(&out, omm_bytes_str("hello"));
    omm_buf_init(&other, 1000);
    for (unsigned i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const size_t end = fields[i].length + 1 + fields[i].size;
        CHECK_EQ(out.data[fields[i].length], fields[i].size);
        for (size_t size = fields[i].size - 1; size <= fields[i].size + 1; size += 2) {
            char said[64];
            const size_t kept = size < fields[i].size ? end - 1 : end;
            omm_buf_clear(&other);
            CHECK_OK(omm_buf_append(&other, out.data, kept));
            if (kept == end) CHECK_OK(omm_buf_append(&other, "", 1));
            CHECK_OK(omm_buf_append(&other, out.data + end, out.size - end));
            other.data[fields[i].length] = (uint8_t)size;
            snprintf(said, sizeof said, "envelope %s has %zu bytes, not %zu", fields[i].name, size,
                     fields[i].size);
            CHECK_ERR(omm_envelope_open(&e, omm_buf_view(&other)), OMM_ERR_REFUSED_FORMAT);
            CHECK(strcmp(omm_err_sentence(), said) == 0);
        }
    }
    omm_buf_fini(&other);
    omm_buf_fini(&out);
}

static void test_limits(void) {
    static uint8_t big[OMM_ENVELOPE_BYTES_MAX + 1];
    static const uint8_t field[3] = {0x0a, 0x01, 'x'};
    omm_key key = key_of(1);
    omm_envelope e;
    omm_buf out;
    omm_buf_init(&out, (size_t)2 * OMM_ENVELOPE_BYTES_MAX);
    CHECK_ERR(omm_envelope_seal(&out, OMM_CONTEXT_POLL, omm_bytes_of(NULL, 0), &key),
              OMM_ERR_FORMAT);
    CHECK_ERR(omm_envelope_seal(&out, OMM_CONTEXT_POLL, omm_bytes_of(big, sizeof big), &key),
              OMM_ERR_TOO_BIG);
    CHECK_EQ(out.size, 0);
    CHECK_ERR(omm_envelope_open(&e, omm_bytes_of(big, sizeof big)), OMM_ERR_REFUSED_SIZE);
    CHECK_ERR(omm_envelope_open(&e, omm_bytes_of(big, 0)), OMM_ERR_REFUSED_SIZE);
    for (size_t i = 0; i + 3 <= OMM_ENVELOPE_BYTES_MAX; i += 3) memcpy(big + i, field, 3);
    size_t n = sizeof big / 3 * 3; /* one field 87,381 times */
    CHECK_ERR(omm_envelope_open(&e, omm_bytes_of(big, n)), OMM_ERR_REFUSED_SIZE);
    omm_buf_fini(&out);
}

static void test_no_memory(void) {
    omm_buf sealed;
    seal(&sealed, omm_bytes_str("hello"));
    omm_key key = key_of(1);
    for (size_t nth = 1;; nth++) {
        size_t live = omm_mem_live();
        omm_buf out;
        omm_envelope e;
        omm_buf_init(&out, 1000);
        omm_mem_fail_nth(nth);
        omm_err err = omm_envelope_seal(&out, OMM_CONTEXT_OFFER, omm_bytes_str("hello"), &key);
        bool untouched = err == OMM_OK || out.size == 0;
        if (err == OMM_OK) err = omm_envelope_open_as(&e, OMM_CONTEXT_OFFER, omm_buf_view(&sealed));
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        omm_buf_fini(&out);
        CHECK_EQ(omm_mem_live(), live);
        CHECK(untouched);
        if (err == OMM_OK) break;
        CHECK_ERR(err, OMM_ERR_NOMEM);
        CHECK(nth < 30);
    }
    omm_buf_fini(&sealed);
}

int main(void) {
    test_round_trip();
    test_golden();
    test_contexts();
    test_tamper();
    test_forgeries();
    test_spellings();
    test_field_sizes();
    test_limits();
    test_no_memory();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
