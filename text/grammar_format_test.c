/* grammar_format_test.c - which texts are of a format; all of it together fits one schema many times. */
#include "grammar_internal.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <stdio.h>

static bool takes(const pattern_table *t, uint32_t start, const char *text) {
    uint32_t state = start;
    for (const char *p = text; *p; p++) {
        const pattern_edge *edge = pattern_find(t, state, (uint8_t)*p, (uint8_t)*p, PATTERN_NONE);
        if (!edge) return false;
        state = edge->next;
    }
    return t->states[state].left == 0;
}

static uint32_t add(pattern_table *t, const char *name, bool wide) {
    uint32_t start = 0;
    const char *expression = grammar_format(name, wide);
    CHECK(expression != NULL);
    CHECK_OK(pattern_add(&start, t, expression, 0, PATTERN_NONE));
    return start;
}

#define LABEL_41 "a123456789012345678901234567890123456789b"

typedef struct texts {
    const char *name, *yes[12], *no[20];
} texts;

static void check_texts(const texts *cases, size_t count, bool wide) {
    pattern_table t = {0};
    for (size_t i = 0; i < count; i++) {
        const uint32_t start = add(&t, cases[i].name, wide);
        for (size_t k = 0; k < 12 && cases[i].yes[k]; k++)
            if (!takes(&t, start, cases[i].yes[k])) {
                fprintf(stderr, "%s: not taken: %s\n", cases[i].name, cases[i].yes[k]);
                exit(1);
            }
        for (size_t k = 0; k < 20 && cases[i].no[k]; k++)
            if (takes(&t, start, cases[i].no[k])) {
                fprintf(stderr, "%s: taken: %s\n", cases[i].name, cases[i].no[k]);
                exit(1);
            }
        if (getenv("OMM_SHOW"))
            fprintf(stderr, "%s %u states %u edges %u work\n", cases[i].name, t.state_count,
                    t.edge_count, t.work);
    }
    pattern_table_fini(&t);
}

static void test_narrow(void) {
    static const texts cases[] = {
        {"date",
         {"2026-11-27", "0001-01-01", "9999-12-31"},
         {"", "2026-11-7", "2026-00-01", "2026-01-00", "2026-01-32", "02026-01-01", "2026/01/01",
          "2026-11-27T"}},
        {"time",
         {"00:00:00Z", "23:59:59+23:59", "12:30:01.5-01:00", "12:30:01.123456Z"},
         {"24:00:00Z", "12:60:00Z", "12:30:60Z", "12:30:00", "12:30Z", "12:30:01.Z",
          "12:30:01.1234567Z", "12:30:01+24:00", "12:30:01+0100", "12:30:01z"}},
        {"date-time",
         {"2026-11-27T20:15:00Z", "2024-02-29T00:00:00.001+05:30"},
         {"2026-11-27", "2026-11-27 20:15:00Z", "2026-11-27T20:15:00", "2023-02-29T00:00:00Z"}},
        {"duration",
         {"P1Y2M3DT4H5M6S", "P1W", "PT1S", "P1D", "P1Y", "P2M1DT1M", "PT1H1M"},
         {"PT99999999M", "PT1193047H", "P", "PT", "P1", "1D", "P1D1M", "P1Y3D", "PT1H1S", "P1WT1S",
          "P1DT", "-P1D", "PT1.5S"}},
        {"email",
         {"a@b.cd", "first.last+tag@mail.example.org", "x_%@a-b.co", "a@b.tech", "a@1.asia",
          "a@a--b.team", "a@ab.lol.global", "a@b.onions"},
         {"a", "@b.cd", "a@", "a@b", ".a@b.cd", "a.@b.cd", "a..b@c.de", "a b@c.de", "a@-b.cd",
          "a@b-.cd", "a@b.c1", "a@b..cd", "\"a\"@b.cd"}},
        {"email",
         {"a@b.tests", "a@b.LOCA", "a@b.arp", "a@b.info", "a@b.museum", "a@b.travel"},
         {"a@b.test", "a@b.Local", "a@b.localhost", "a@b.INVALID", "a@b.onion", "a@b.arpa",
          "a@ab--c.de", "a@xn--80ak6aa92e.com", "a@b.12"}},
        {"hostname",
         {"a", "localhost", "a-b.c1.example", "1.2.3.4"},
         {"ab--c", "xn--a", "", "-a", "a-", "a..b", "a.", ".a", "a_b", LABEL_41}},
        {"ipv4",
         {"0.0.0.0", "127.0.0.1", "255.255.255.255", "192.168.249.9"},
         {"256.0.0.0", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.", "1.2.3.260", "1.2.3.-1"}},
        {"ipv6",
         {"::", "::1", "1::", "fe80::1", "2001:DB8:0:0:8:800:200c:417a",
          "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3::6:7:8", "1::3:4:5:6:7:8"},
         {"", ":", ":::", "1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3",
          "12345::", "1:2:3:4:5:6:7::8", "::1:2:3:4:5:6:7:8", "1:", ":1", "g::", "1::2:3:4:5:6:7:8",
          "::ffff:1.2.3.4"}},
        {"uuid",
         {"123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174ABF"},
         {"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400",
          "123e4567-e89b-12d3-a456-4266141740000", "g23e4567-e89b-12d3-a456-426614174000"}},
        {"uri",
         {"https://example.org", "http://a.b:8080/x/y%20z?q=1&r=:@/?#frag", "mailto:a@b.cd",
          "urn:isbn:123", "file:/etc/hosts", "ftp://a//b", "x:a/b", "http://a/?#", "file:///a/b"},
         {"", "example.org", "https://", "http:///x", "http://a b", "http://a/%2", "1http://a",
          "http://a:/", "http://a/#b#c", "http://a/<>", ":a", "a:"}},
        {"uri",
         {"http://1.2.3.4:80/", "HTTPS://1.a", "fax:1", "web+x:y", "hxxp://a.b", "sftp://a:22/x",
          "ws://a"},
         {"http://256.256.256.256", "http://foo.123/", "http:a:99999", "https:@", "http:%2F",
          "HTTP:a", "wss:x", "ftp:/a", "http://1.2.3", "http://xn--a.b", "file://a:80/x"}},
        {"uri",
         {"http://localhost:11434/v1", "http://a:65535", "ws://a:60000/", "http://a:10000"},
         {"http://a:65536", "http://a:0", "http://a:070", "http://a:99999", "http://a:655350"}},
    };
    check_texts(cases, sizeof cases / sizeof cases[0], false);
    CHECK(!grammar_format("Date", false) && !grammar_format("", false));
    CHECK(!grammar_format("regex", true));
}

/* What RFCs have and readers take beyond that; but the words that a model has where it knows no date are none. */
static void test_wide(void) {
    static const texts cases[] = {
        {"date-time",
         {"2026-11-27T20:15:00.123456789z", "2026-11-27t20:15:60+05:30", "2026-11-27T20:15:00",
          "2026-11-27 20:15", "2026-11-27_20:15", "2026-11-27", "1764274500", "-1.5",
          "2026-11-27T20:15:00+0530", "2026-11-27T20:15-05"},
         {"", "now", "today", "27.11.2026", "2026-11-27T", "2026-11-27T20", "2026-11-27T20:15x"}},
        {"date",
         {"2026-11-27", "0000-01-01", "2026-11-27T00:00:00Z", "1764201600"},
         {"", "2026-1-2", "2026-11", "27 November", "tomorrow"}},
        {"time", {"20:15", "20:15:00", "20:15:60.1234567z", "20:15:00-00:00"}, {"", "8 pm", "20"}},
        {"duration",
         {"P1Y", "PT1.5S", "-P1DT2H", "P99999999W", "1 day, 10:00:00", "10:00", "1.5"},
         {"", "an hour", "-"}},
        {"email",
         {"my-service-account-prod@p.iam.gserviceaccount.com", "a.b.c.d@e.com", "root@localhost",
          "x@server.local", "Jo <jo@b.cd>", "a@xn--bcher-kva.example", "a@[1.2.3.4]",
          "\"a@b\"@c.d"},
         {"", "a", "@", "a@", "@b.cd"}},
        {"hostname",
         {"a.b.c.d.e.f.g.h", "xn--bcher-kva.example", "my_service", "a.example.", LABEL_41},
         {"", "http://a", "a b", "a/b", ".a"}},
        {"ipv4", {"1.2.3.4"}, {"1.2.3", "01.2.3.4"}},
        {"ipv6",
         {"::", "::1", "1::", "::ffff:1.2.3.4", "fe80::1%eth0", "1:2:3:4:5:6:7:8",
          "1:2:3:4:5:6:7::"},
         {"", ":", "1", "g::", "1.2.3.4", "::1/64"}},
        {"uuid",
         {"123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000",
          "{123e4567-e89b-12d3-a456-426614174000}",
          "urn:uuid:123e4567-e89b-12d3-a456-426614174000"},
         {"", "1", "123e4567-e89b-12d3-a456-42661417400", "123e4567-e89b-12d3-a456-4266141740000"}},
        {"uri",
         {"http://127.0.0.1:27017", "http://[::1]:8080/", "postgres://u:p@db:5432/app",
          "http://my_service/", "https://xn--bcher-kva.example/", "about:", "a:b c", "http:a"},
         {"", "example.com", "/a/b", "1a:b", "a_b:c"}},
    };
    check_texts(cases, sizeof cases / sizeof cases[0], true);
}

static int days_of(int year, int month) {
    static const int days[] = {0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0};
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month] + (leap && month == 2);
}

static void test_dates(void) {
    pattern_table t = {0};
    const uint32_t start = add(&t, "date", false);
    for (int year = 0; year < 10000; year += year % 100 == 10 && year % 400 != 90 ? 77 : 1)
        for (int month = 0; month <= 13; month++)
            for (int day = 0; day <= 32; day++) {
                char text[48];
                snprintf(text, sizeof text, "%04d-%02d-%02d", year, month, day);
                const bool is_day = year > 0 && day > 0 && day <= days_of(year, month);
                CHECK_EQ(takes(&t, start, text), is_day);
            }
    pattern_table_fini(&t);
}

/* Of the largest ones a schema has room for some tens. */
static void test_room(void) {
    static const char *const names[] = {"email", "uri", "hostname", "date-time", "ipv6"};
    for (int wide = 0; wide < 2; wide++) {
        pattern_table t = {0};
        for (unsigned i = 0; i < 50; i++) add(&t, names[i % 5], wide == 1);
        pattern_table_fini(&t);
    }
}

int main(void) {
    test_narrow();
    test_wide();
    test_dates();
    test_room();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
