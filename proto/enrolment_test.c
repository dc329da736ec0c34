/* What an invitation proves, for whom, and what its text may look like. */
#include "omm/enrolment.h"

#include "omm/clock.h"
#include "omm/mem.h"
#include "omm_test.h"
#include "samples.h"

#include <string.h>

static omm_key key_of(uint64_t number) {
    omm_key key;
    omm_seed seed = omm_seed_from_u64(number);
    omm_key_from_seed(&key, &seed);
    return key;
}

static void test_text(void) {
    static const char *const bad[] = {
        "",
        "invite-",
        "invite",
        "invitee00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff0",
        "invite-00112233445566778899aabbccddeeff00112233445566778899aabbccddeef",
        "invite-00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff0",
        "invite-00112233445566778899aabbccddeeff00112233445566778899aabbccddeefg",
        "invite-00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff",
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
        "Invite-00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
        "invite-00112233445566778899aabbccddeeff 00112233445566778899aabbccddeef",
    };
    omm_seed token = omm_seed_from_u64(5);
    omm_seed back;
    char text[OMM_INVITATION_TEXT_SIZE];
    char padded[OMM_INVITATION_TEXT_SIZE + 8];
    omm_invitation_text(text, &token);
    CHECK_EQ(strlen(text), OMM_INVITATION_TEXT_SIZE - 1);
    CHECK_OK(omm_invitation_parse(&back, text));
    CHECK(memcmp(back.b, token.b, sizeof back.b) == 0);
    (void)snprintf(padded, sizeof padded, " \t%s\r\n", text);
    memset(&back, 0, sizeof back);
    CHECK_OK(omm_invitation_parse(&back, padded));
    CHECK(memcmp(back.b, token.b, sizeof back.b) == 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(omm_invitation_parse(&back, bad[i]), OMM_ERR_FORMAT);
        CHECK(!strstr(omm_err_sentence(), "00112233")); /* it never repeats a secret */
    }
}

static void test_proof(void) {
    const omm_key coordinator = key_of(1);
    const omm_key node = key_of(2);
    const omm_key thief = key_of(3);
    omm_seed token = omm_seed_from_u64(4);
    omm_enrol e = {.coordinator = coordinator.public_key};
    omm_invitation_use(&e, &token, &node.public_key);
    const omm_digest id = omm_invitation_id(&token);
    const omm_digest shown = omm_key_id(&e.invitation);
    CHECK(omm_digest_equal(&id, &shown));
    CHECK(memcmp(e.invitation.b, token.b, sizeof token.b) != 0);
    CHECK_OK(omm_invitation_check(&e, &node.public_key));
    CHECK_ERR(omm_invitation_check(&e, &thief.public_key), OMM_ERR_REFUSED_SIGNATURE);
    omm_enrol other = e;
    other.coordinator = thief.public_key;
    CHECK_ERR(omm_invitation_check(&other, &node.public_key), OMM_ERR_REFUSED_SIGNATURE);
    for (unsigned bit = 0; bit < 512; bit++) {
        other = e;
        other.invitation_signature.b[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_ERR(omm_invitation_check(&other, &node.public_key), OMM_ERR_REFUSED_SIGNATURE);
    }
    /* What the thief signs with the key he has is not the invitation's. */
    omm_seed own = omm_seed_from_u64(3);
    other = (omm_enrol){.coordinator = coordinator.public_key};
    omm_invitation_use(&other, &own, &thief.public_key);
    other.invitation = e.invitation;
    CHECK_ERR(omm_invitation_check(&other, &thief.public_key), OMM_ERR_REFUSED_SIGNATURE);
}

static void test_limits(void) {
    omm_buf out;
    omm_arena arena;
    omm_enrol e = sample_enrol(), back;
    omm_buf_init(&out, 4096);
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    e.has_invitation = false;
    CHECK_OK(omm_enrol_encode(&out, &e));
    CHECK_OK(omm_enrol_decode(&back, omm_buf_view(&out), &arena));
    CHECK(!back.has_invitation);
    /* A key without its signature, and the other way round. */
    CHECK_OK(omm_buf_append(&out, "\x1a\x20", 2));
    CHECK_OK(omm_buf_append(&out, e.invitation.b, 32));
    CHECK_ERR(omm_enrol_decode(&back, omm_buf_view(&out), &arena), OMM_ERR_REFUSED_FORMAT);
    out.size -= 34;
    CHECK_OK(omm_buf_append(&out, "\x22\x40", 2));
    CHECK_OK(omm_buf_append(&out, e.invitation_signature.b, 64));
    CHECK_ERR(omm_enrol_decode(&back, omm_buf_view(&out), &arena), OMM_ERR_REFUSED_FORMAT);
    out.size -= 66;
    CHECK_OK(omm_buf_append(&out, "\x30\x05", 2)); /* work, and for nothing */
    CHECK_ERR(omm_enrol_decode(&back, omm_buf_view(&out), &arena), OMM_ERR_REFUSED_FORMAT);
    CHECK(strstr(omm_err_sentence(), "work without the challenge"));
    omm_arena_fini(&arena);
    omm_buf_fini(&out);
}

/* 2^bits tries on average, and no number below the first is one. */
static void test_work(void) {
    const omm_key node = key_of(2);
    uint64_t sum = 0;
    for (uint8_t c = 0; c < 64; c++) {
        const omm_digest challenge = sample_digest(c);
        uint64_t found = 0, again = 0;
        CHECK(omm_work_search(&found, &challenge, &node.public_key, 8, 0, 1u << 16));
        CHECK(omm_work_bits(&challenge, &node.public_key, found) >= 8);
        CHECK(found == 0 || !omm_work_search(&again, &challenge, &node.public_key, 8, 0, found));
        CHECK(omm_work_search(&again, &challenge, &node.public_key, 8, found, 1));
        CHECK_EQ(found, again);
        for (uint64_t i = 0; i < found; i++)
            CHECK(omm_work_bits(&challenge, &node.public_key, i) < 8);
        sum += found;
    }
    CHECK(sum / 64 > 128 && sum / 64 < 512);
    const uint64_t begin_ns = omm_measure_ns();
    const omm_digest challenge = sample_digest(1);
    uint64_t none = 0;
    CHECK(!omm_work_search(&none, &challenge, &node.public_key, 200, 0, 1u << 17));
    printf("work: %.0f hashes/s on one thread\n", 131072e9 / (double)(omm_measure_ns() - begin_ns));
    omm_digest zero = {{0}};
    CHECK(omm_work_bits(&zero, &node.public_key, 0) < 32);
}

int main(void) {
    test_work();
    test_text();
    test_proof();
    test_limits();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
