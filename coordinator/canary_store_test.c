/* The keys of who failed a canary: so many are known, and then the oldest is forgotten. */
#include "canary.h"

#include "omm/mem.h"
#include "omm_test.h"

static canary_peer peer_of(uint32_t number) {
    canary_peer p = {.node = COORD_ANONYMOUS, .state = CANARY_FAILED, .reason = "why"};
    omm_put_u32(p.key.b, number);
    p.id = omm_key_id(&p.key);
    p.submission = omm_hash(omm_bytes_of(p.id.b, sizeof p.id.b));
    return p;
}

static void fail(omm_db *db, uint32_t number) {
    const canary_peer p = peer_of(number);
    CHECK_OK(canary_store_failed(db, &p, omm_bytes_str("receipt")));
}

static bool is_known(omm_db *db, uint32_t number) {
    const canary_peer p = peer_of(number);
    bool found = false;
    CHECK_OK(canary_store_find_failed(&found, NULL, NULL, NULL, db, &p.id));
    return found;
}

static uint64_t count(omm_db *db) {
    uint64_t out = 0;
    CHECK_OK(canary_store_failed_count(&out, db));
    return out;
}

static omm_err pass(void *ud, const canary_peer *row) {
    (void)row;
    ++*(uint32_t *)ud;
    return OMM_OK;
}

/* A row whose state is none stops who reads it. */
static void test_state(void) {
    omm_db *db;
    uint32_t rows = 0;
    const canary_peer p = peer_of(1);
    CHECK_OK(canary_store_open(&db, NULL));
    CHECK_OK(canary_store_save(db, &p, CANARY_NO_BYTES, (omm_bytes){0}));
    CHECK_OK(canary_store_each(db, pass, &rows));
    CHECK_OK(omm_db_run(db, "UPDATE peer SET state = ?", OMM_DB_INT(CANARY_FAILED + 1)));
    CHECK_ERR(canary_store_each(db, pass, &rows), OMM_ERR_FORMAT);
    CHECK_EQ(rows, 1);
    omm_db_close(db);
}

int main(void) {
    omm_db *db;
    test_state();
    CHECK_OK(canary_store_open(&db, NULL));
    for (uint32_t i = 1; i <= CANARY_FAILED_MAX; i++) fail(db, i);
    CHECK_EQ(count(db), CANARY_FAILED_MAX);
    CHECK(is_known(db, 1) && is_known(db, CANARY_FAILED_MAX));
    CHECK(!is_known(db, CANARY_FAILED_MAX + 1));
    fail(db, CANARY_FAILED_MAX + 1);
    CHECK_EQ(count(db), CANARY_FAILED_MAX);
    CHECK(!is_known(db, 1) && is_known(db, 2) && is_known(db, CANARY_FAILED_MAX + 1));
    omm_db_close(db);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
