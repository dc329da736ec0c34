/* What two data sets share: counted by example, and the first of it by place, whatever the order of the hashes. */
#include "omm/overlap.h"

#include "omm/mem.h"
#include "omm_test.h"

static omm_mark mark(uint64_t hash, uint32_t place) {
    return (omm_mark){.hash = hash, .place = place};
}

/* Held-out lines 1 .. 20, the hash of line n is 1000 - n; of these the even ones are met, by line 100 + n first. */
static void first_by_place(void) {
    omm_marks marks = {0};
    for (uint32_t line = 1; line <= 20; line++)
        CHECK_OK(omm_marks_add(&marks, mark(1000 - line, line)));
    omm_marks_sort(&marks);
    CHECK(marks.count == 20 && marks.rows[0].place == 20);
    for (uint32_t line = 20; line > 0; line -= 2) {
        omm_marks_meet(&marks, mark(1000 - line, 100 + line));
        omm_marks_meet(&marks, mark(1000 - line, 200 + line));
    }
    omm_marks_meet(&marks, mark(5, 1));
    omm_marks_meet(&marks, mark(5000, 1));
    const omm_overlap o = omm_marks_overlap(&marks);
    CHECK(o.count == 10 && o.shown == OMM_OVERLAP_SHOWN);
    for (uint32_t i = 0; i < OMM_OVERLAP_SHOWN; i++)
        CHECK(o.first[i].place == 2 * i + 2 && o.first[i].met == 102 + 2 * i);
    omm_marks_fini(&marks);
}

/* Of several at one place (the windows of a line) those come first whose hash does. */
static void at_one_place(void) {
    omm_marks marks = {0};
    for (uint32_t i = 0; i < OMM_OVERLAP_SHOWN + 3; i++) {
        CHECK_OK(omm_marks_add(&marks, mark(10 + i, 1)));
    }
    omm_marks_sort(&marks);
    for (uint32_t i = 0; i < marks.count; i++) omm_marks_meet(&marks, mark(10 + i, 20 + i));
    const omm_overlap o = omm_marks_overlap(&marks);
    CHECK(o.count == OMM_OVERLAP_SHOWN + 3 && o.shown == OMM_OVERLAP_SHOWN);
    for (uint32_t i = 0; i < OMM_OVERLAP_SHOWN; i++) CHECK_EQ(o.first[i].met, 20 + i);
    omm_marks_fini(&marks);
}

/* Those behind an equal one, by place, each with the first; without a place they are counted alone. */
static void behind_equal_ones(void) {
    omm_marks marks = {0};
    static const uint32_t places[][2] = {{7, 30}, {9, 4}, {7, 5}, {8, 1}, {7, 12}, {9, 2}, {3, 0}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        CHECK_OK(omm_marks_add(&marks, mark(places[i][0], places[i][1])));
    omm_marks_sort(&marks);
    omm_overlap o = omm_marks_doubles(&marks);
    CHECK(o.count == 3 && o.shown == 3);
    CHECK(o.first[0].place == 4 && o.first[0].met == 2);
    CHECK(o.first[1].place == 12 && o.first[1].met == 5);
    CHECK(o.first[2].place == 30 && o.first[2].met == 5);
    CHECK_OK(omm_marks_add(&marks, mark(3, 0)));
    omm_marks_sort(&marks);
    o = omm_marks_doubles(&marks);
    CHECK(o.count == 4 && o.shown == 3);
    omm_marks_fini(&marks);
    CHECK_EQ(omm_marks_doubles(&marks).count, 0);
}

/* Equal ones are each met; of those whose place nobody knows only the number is told. */
static void equal_and_unknown(void) {
    omm_marks marks = {0};
    CHECK_OK(omm_marks_add(&marks, mark(7, 3)));
    CHECK_OK(omm_marks_add(&marks, mark(7, 1)));
    CHECK_OK(omm_marks_add(&marks, mark(7, 2)));
    CHECK_OK(omm_marks_add(&marks, mark(8, 0)));
    omm_marks_sort(&marks);
    for (uint32_t i = 0; i < 3; i++)
        CHECK_EQ(marks.rows[i].place, i + 1); /* the first meets first */
    omm_marks_meet(&marks, mark(7, 9));
    omm_marks_meet(&marks, mark(8, 9));
    const omm_overlap o = omm_marks_overlap(&marks);
    CHECK(o.count == 4 && o.shown == 3);
    for (uint32_t i = 0; i < 3; i++) CHECK(o.first[i].place == i + 1 && o.first[i].met == 9);
    omm_marks_fini(&marks);
    omm_marks_meet(&marks, mark(7, 9)); /* of none */
    CHECK(omm_marks_overlap(&marks).count == 0);
    omm_mem_fail_nth(1);
    CHECK_ERR(omm_marks_add(&marks, mark(7, 1)), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
}

/* The same ids, as far as a training sees them; an element is known by its number. */
static void marks_of_examples(void) {
    const uint32_t ids[] = {1, 2, 3, 4}, other[] = {1, 2, 3, 5};
    const omm_example a = {.ids = ids, .count = 4, .line = 3},
                      b = {.ids = other, .count = 4, .line = 1, .element = 7},
                      c = {.ids = ids, .count = 3};
    CHECK(omm_mark_of(&a, 4).hash != omm_mark_of(&b, 4).hash);
    CHECK(omm_mark_of(&a, 4).hash != omm_mark_of(&c, 4).hash);
    CHECK(omm_mark_of(&a, 3).hash == omm_mark_of(&b, 3).hash);
    CHECK(omm_mark_of(&a, 3).hash == omm_mark_of(&c, 3).hash);
    CHECK(omm_mark_of(&a, 4).place == 3 && omm_mark_of(&b, 4).place == 7);
    CHECK(omm_mark_of(&c, 4).place == 0 && omm_mark_of(&c, 4).met == 0);
}

int main(void) {
    first_by_place();
    at_one_place();
    equal_and_unknown();
    behind_equal_ones();
    marks_of_examples();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
