/* What two data sets share: counted by example, and the first of it by line, whatever the order of the hashes. */
#include "data_marks.h"

#include "omm/mem.h"
#include "omm_test.h"

/* Held-out lines 1 .. 20, the hash of line n is 1000 - n; of these the even ones are met, by line 100 + n first. */
static void first_by_line(void) {
    data_marks marks = {0};
    for (uint32_t line = 1; line <= 20; line++) CHECK_OK(data_marks_add(&marks, 1000 - line, line));
    data_marks_sort(&marks);
    CHECK(marks.count == 20 && marks.rows[0].line == 20);
    for (uint32_t line = 20; line > 0; line -= 2) {
        data_marks_meet(&marks, 1000 - line, 100 + line);
        data_marks_meet(&marks, 1000 - line, 200 + line);
    }
    data_marks_meet(&marks, 5, 1);
    data_marks_meet(&marks, 5000, 1);
    const data_shared s = data_shared_of(&marks);
    CHECK(s.count == 10 && s.shown == DATA_PAIRS_SHOWN);
    for (uint32_t i = 0; i < DATA_PAIRS_SHOWN; i++)
        CHECK(s.first[i].line == 2 * i + 2 && s.first[i].met == 102 + 2 * i);
    data_marks_fini(&marks);
}

/* Equal ones are each met; of those whose line nobody knows only the number is told. */
static void equal_and_unknown(void) {
    data_marks marks = {0};
    CHECK_OK(data_marks_add(&marks, 7, 3));
    CHECK_OK(data_marks_add(&marks, 7, 1));
    CHECK_OK(data_marks_add(&marks, 8, 0));
    data_marks_sort(&marks);
    data_marks_meet(&marks, 7, 9);
    data_marks_meet(&marks, 8, 9);
    const data_shared s = data_shared_of(&marks);
    CHECK(s.count == 3 && s.shown == 2 && s.first[0].line == 1 && s.first[1].line == 3);
    json_t *pairs = data_shared_json(&s);
    CHECK(json_array_size(pairs) == 2);
    CHECK(json_integer_value(json_array_get(json_array_get(pairs, 1), 0)) == 9);
    CHECK(json_integer_value(json_array_get(json_array_get(pairs, 1), 1)) == 3);
    json_decref(pairs);
    data_marks_fini(&marks);
    data_marks_meet(&marks, 7, 9); /* of none */
    CHECK(data_shared_of(&marks).count == 0);
    omm_mem_fail_nth(1);
    CHECK_ERR(data_marks_add(&marks, 7, 1), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
}

int main(void) {
    first_by_line();
    equal_and_unknown();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
