/* tls.c - owns certificates: made, fingerprinted, matched with their keys, and handed to nng. */
#include "omm/tls.h"

#include "nng_glue.h"
#include "omm/clock.h"
#include "omm/mem.h"

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/ecp.h>
#include <mbedtls/entropy.h>
#include <mbedtls/error.h>
#include <mbedtls/oid.h>
#include <mbedtls/pk.h>
#include <mbedtls/version.h>
#include <mbedtls/x509_crt.h>
#include <nng/supplemental/tls/tls.h>
#include <stdio.h>
#include <string.h>

#define PEM_BYTES 4096 /* what one certificate or key of ours takes at most */
#define SUBJECT "CN=" OMM_TLS_NAME
#define NOT_BEFORE "20200101000000" /* a clock that is off must not lock a node out */
#define NOT_AFTER                                                                                  \
    "99991231235959" /* RFC 5280, 4.1.2.5: no end; a certificate is replaced, not renewed */
#define SERIAL_BYTES 16

/* ---- making ---- */

typedef struct randomness {
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context generator;
} randomness;

typedef struct maker {
    randomness random;
    mbedtls_pk_context key;
    mbedtls_x509write_cert certificate;
    uint8_t pem[PEM_BYTES];
} maker;

/* Release with random_close, also after an error.  Returns mbedTLS' code. */
static int random_open(randomness *r) {
    static const char purpose[] = "openmeshmind tls key";
    mbedtls_entropy_init(&r->entropy);
    mbedtls_ctr_drbg_init(&r->generator);
    return mbedtls_ctr_drbg_seed(&r->generator, mbedtls_entropy_func, &r->entropy,
                                 (const unsigned char *)purpose, sizeof purpose);
}

static void random_close(randomness *r) {
    mbedtls_ctr_drbg_free(&r->generator);
    mbedtls_entropy_free(&r->entropy);
}

static omm_err trouble(int code, const char *doing) {
    char text[128];
    mbedtls_strerror(code, text, sizeof text);
    omm_err err = OMM_ERR_IO;
    if (code == MBEDTLS_ERR_X509_ALLOC_FAILED || code == MBEDTLS_ERR_PK_ALLOC_FAILED ||
        code == MBEDTLS_ERR_MPI_ALLOC_FAILED || code == MBEDTLS_ERR_ECP_ALLOC_FAILED)
        err = OMM_ERR_NOMEM;
    return omm_raise(err, "%s: %s", doing, text);
}

static int make_key(maker *m) {
    int code = mbedtls_pk_setup(&m->key, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY));
    if (code == 0)
        code = mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(m->key),
                                   mbedtls_ctr_drbg_random, &m->random.generator);
    return code;
}

#if MBEDTLS_VERSION_NUMBER >= 0x03040000
static int set_serial(maker *m, uint8_t serial[SERIAL_BYTES]) {
    return mbedtls_x509write_crt_set_serial_raw(&m->certificate, serial, SERIAL_BYTES);
}
#else
static int set_serial(maker *m, const uint8_t serial[SERIAL_BYTES]) {
    mbedtls_mpi number;
    mbedtls_mpi_init(&number);
    int code = mbedtls_mpi_read_binary(&number, serial, SERIAL_BYTES);
    if (code == 0) code = mbedtls_x509write_crt_set_serial(&m->certificate, &number);
    mbedtls_mpi_free(&number);
    return code;
}
#endif

/* SubjectAltName ::= SEQUENCE { [2] IA5String }, RFC 5280 section 4.2.1.6. */
static int add_name(maker *m) {
    enum { NAME = sizeof OMM_TLS_NAME - 1 };
    uint8_t der[4 + NAME] = {0x30, 2 + NAME, 0x82, NAME};
    memcpy(der + 4, OMM_TLS_NAME, NAME);
    return mbedtls_x509write_crt_set_extension(&m->certificate, MBEDTLS_OID_SUBJECT_ALT_NAME,
                                               MBEDTLS_OID_SIZE(MBEDTLS_OID_SUBJECT_ALT_NAME), 0,
                                               der, sizeof der);
}

static int fill_certificate(maker *m) {
    mbedtls_x509write_cert *c = &m->certificate;
    uint8_t serial[SERIAL_BYTES];
    int code = mbedtls_ctr_drbg_random(&m->random.generator, serial, sizeof serial);
    serial[0] = (uint8_t)((serial[0] & 0x7f) | 0x40); /* positive, and always as long */
    mbedtls_x509write_crt_set_version(c, MBEDTLS_X509_CRT_VERSION_3);
    mbedtls_x509write_crt_set_md_alg(c, MBEDTLS_MD_SHA256);
    mbedtls_x509write_crt_set_subject_key(c, &m->key);
    mbedtls_x509write_crt_set_issuer_key(c, &m->key);
    if (code == 0) code = set_serial(m, serial);
    if (code == 0) code = mbedtls_x509write_crt_set_subject_name(c, SUBJECT);
    if (code == 0) code = mbedtls_x509write_crt_set_issuer_name(c, SUBJECT);
    if (code == 0) code = mbedtls_x509write_crt_set_validity(c, NOT_BEFORE, NOT_AFTER);
    if (code == 0) code = mbedtls_x509write_crt_set_basic_constraints(c, 0, -1);
    if (code == 0) code = mbedtls_x509write_crt_set_key_usage(c, MBEDTLS_X509_KU_DIGITAL_SIGNATURE);
    if (code == 0) code = add_name(m);
    return code;
}

static omm_err append_pem(omm_buf *out, const maker *m) {
    return omm_buf_append(out, m->pem, strlen((const char *)m->pem));
}

static omm_err make(omm_buf *certificate, omm_buf *key, maker *m) {
    int code = random_open(&m->random);
    if (code == 0) code = make_key(m);
    if (code != 0) return trouble(code, "cannot make a TLS key");
    code = fill_certificate(m);
    if (code == 0)
        code = mbedtls_x509write_crt_pem(&m->certificate, m->pem, sizeof m->pem,
                                         mbedtls_ctr_drbg_random, &m->random.generator);
    if (code != 0) return trouble(code, "cannot make a certificate");
    OMM_TRY(append_pem(certificate, m));
    code = mbedtls_pk_write_key_pem(&m->key, m->pem, sizeof m->pem);
    if (code != 0) return trouble(code, "cannot write a TLS key");
    return append_pem(key, m);
}

omm_err omm_tls_make(omm_buf *certificate, omm_buf *key) {
    size_t certificate_size = certificate->size, key_size = key->size;
    OMM_TRY(omm_buf_reserve(key, PEM_BYTES)); /* no copy of the secret moves */
    maker *m = omm_alloc(1, sizeof *m);
    if (!m) return omm_raise(OMM_ERR_NOMEM, "no memory to make a certificate");
    mbedtls_pk_init(&m->key);
    mbedtls_x509write_crt_init(&m->certificate);
    omm_err err = make(certificate, key, m);
    mbedtls_x509write_crt_free(&m->certificate);
    mbedtls_pk_free(&m->key);
    random_close(&m->random);
    omm_free_secret(m, sizeof *m);
    if (err == OMM_OK) return OMM_OK;
    certificate->size = certificate_size;
    key->size = key_size;
    return err;
}

/* ---- reading ---- */

/* mbedtls takes PEM with its NUL.  The copy may be a key: free it with omm_free_secret. */
static omm_err pem_text(char **out, omm_bytes pem, const char *what) {
    if (pem.size == 0 || pem.size > OMM_TLS_PEM_BYTES_MAX)
        return omm_raise(OMM_ERR_FORMAT, "%s has %zu bytes; expected a PEM text of 1 to %u", what,
                         pem.size, OMM_TLS_PEM_BYTES_MAX);
    if (memchr(pem.data, 0, pem.size))
        return omm_raise(OMM_ERR_FORMAT, "%s: a NUL byte; expected a PEM text", what);
    *out = omm_alloc(pem.size + 1, 1);
    if (!*out) return omm_raise(OMM_ERR_NOMEM, "no memory for %s", what);
    memcpy(*out, pem.data, pem.size);
    return OMM_OK;
}

static omm_err read_certificates(mbedtls_x509_crt *out, omm_bytes pem) {
    char *text = NULL;
    OMM_TRY(pem_text(&text, pem, "the TLS certificate"));
    mbedtls_x509_crt_init(out);
    int code = mbedtls_x509_crt_parse(out, (const unsigned char *)text, pem.size + 1);
    omm_free(text);
    if (code == 0) return OMM_OK;
    mbedtls_x509_crt_free(out);
    if (code > 0)
        return omm_raise(OMM_ERR_FORMAT, "the TLS certificate: %d of its parts cannot be read",
                         code);
    char why[128];
    mbedtls_strerror(code, why, sizeof why);
    return omm_raise(OMM_ERR_FORMAT,
                     "the TLS certificate: %s; expected PEM, as `keygen --tls` writes it", why);
}

omm_err omm_tls_fingerprint(omm_digest *out, omm_bytes certificates) {
    mbedtls_x509_crt chain;
    OMM_TRY(read_certificates(&chain, certificates));
    *out = omm_sha256(omm_bytes_of(chain.raw.p, chain.raw.len));
    mbedtls_x509_crt_free(&chain);
    return OMM_OK;
}

/* From version 3 on, mbedTLS blinds with random numbers what it computes with a secret. */
#if MBEDTLS_VERSION_NUMBER >= 0x03000000
#define BLINDED(R) , mbedtls_ctr_drbg_random, &(R)->generator
#else
#define BLINDED(R)
#endif

/* text: PEM with its NUL, `size` bytes in all. */
static omm_err check_pair(const mbedtls_x509_crt *chain, const char *text, size_t size,
                          randomness *random) {
    mbedtls_pk_context secret;
    omm_err err = OMM_OK;
    int code = random_open(random);
    if (code != 0) return trouble(code, "cannot check a TLS key");
    mbedtls_pk_init(&secret);
    code =
        mbedtls_pk_parse_key(&secret, (const unsigned char *)text, size, NULL, 0 BLINDED(random));
    if (code != 0) {
        err = omm_raise(OMM_ERR_FORMAT,
                        "the TLS key cannot be read; expected PEM without a passphrase");
    } else if (mbedtls_pk_check_pair(&chain->pk, &secret BLINDED(random)) != 0) {
        err = omm_raise(OMM_ERR_MISMATCH, "the TLS key is not the certificate's");
    }
    mbedtls_pk_free(&secret);
    return err;
}

omm_err omm_tls_check_pair(omm_bytes certificates, omm_bytes key) {
    mbedtls_x509_crt chain;
    char *text = NULL;
    OMM_TRY(pem_text(&text, key, "the TLS key"));
    omm_err err = read_certificates(&chain, certificates);
    if (err == OMM_OK) {
        randomness random;
        err = check_pair(&chain, text, key.size + 1, &random);
        random_close(&random);
        mbedtls_x509_crt_free(&chain);
    }
    omm_free_secret(text, key.size + 1);
    return err;
}

/* "2026-11-23" of mbedtls' time. */
static void put_day(char out[16], const mbedtls_x509_time *t) {
    (void)snprintf(out, 16, "%04d-%02d-%02d", t->year % 10000, t->mon % 100, t->day % 100);
}

omm_err omm_tls_check_time(omm_bytes certificates) {
    mbedtls_x509_crt chain;
    bool is_valid = false;
    char from[16], to[16], now[25];
    OMM_TRY(read_certificates(&chain, certificates));
    for (const mbedtls_x509_crt *c = &chain; c && !is_valid; c = c->next)
        is_valid = !mbedtls_x509_time_is_past(&c->valid_to) &&
                   !mbedtls_x509_time_is_future(&c->valid_from);
    put_day(from, &chain.valid_from);
    put_day(to, &chain.valid_to);
    mbedtls_x509_crt_free(&chain);
    if (is_valid) return OMM_OK;
    const omm_clock clock = omm_clock_system();
    omm_time_iso(now, clock.wall_ms(clock.ud));
    return omm_raise(
        OMM_ERR_MISMATCH,
        "the TLS certificate is valid from %s to %s, and it is %s by this clock; set the "
        "clock, or make another one (keygen --tls)",
        from, to, now);
}

/* ---- nng's ---- */

static int set_up(nng_tls_config *config, const char *certificates, const char *key) {
    int result = nng_tls_config_version(config, NNG_TLS_1_2, NNG_TLS_1_2);
    if (result != 0) return result;
    if (key) return nng_tls_config_own_cert(config, certificates, key, NULL);
    result = nng_tls_config_ca_chain(config, certificates, NULL);
    if (result == 0) result = nng_tls_config_server_name(config, OMM_TLS_NAME);
    if (result == 0) result = nng_tls_config_auth_mode(config, NNG_TLS_AUTH_MODE_REQUIRED);
    return result;
}

omm_err glue_tls_config(nng_tls_config **out, omm_bytes certificates, omm_bytes key) {
    char *texts[2] = {NULL, NULL};
    nng_tls_config *config = NULL;
    bool is_server = key.size > 0;
    omm_digest first;
    OMM_TRY(is_server ? omm_tls_check_pair(certificates, key)
                      : omm_tls_fingerprint(&first, certificates));
    omm_err err = pem_text(&texts[0], certificates, "the TLS certificate");
    if (err == OMM_OK && is_server) err = pem_text(&texts[1], key, "the TLS key");
    if (err == OMM_OK) {
        int result =
            nng_tls_config_alloc(&config, is_server ? NNG_TLS_MODE_SERVER : NNG_TLS_MODE_CLIENT);
        if (result == 0) result = set_up(config, texts[0], texts[1]);
        if (result != 0) err = glue_error(result, "cannot set up", "TLS");
    }
    omm_free(texts[0]);
    if (texts[1]) omm_free_secret(texts[1], key.size + 1);
    if (err != OMM_OK && config) nng_tls_config_free(config);
    if (err == OMM_OK) *out = config;
    return err;
}
