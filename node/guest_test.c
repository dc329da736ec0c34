/* A machine made of files: battery, heat, load and networks in the forms that kernels give them; hours
 * over midnight; the pace of work against wall time. */
#include "omm/guest.h"

#include "omm/bytes.h"
#include "omm/file.h"
#include "omm_test.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char s_root[64];

static void put(const char *file, const char *text) {
    char path[OMM_PATH_MAX], folder[OMM_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s%s", s_root, file);
    CHECK_OK(omm_path_dir(folder, path));
    CHECK_OK(omm_dir_make(folder));
    CHECK_OK(omm_file_write_fast(path, omm_bytes_of(text, strlen(text)), 0644));
}

static void drop(const char *file) {
    char path[OMM_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s%s", s_root, file);
    CHECK_OK(omm_file_remove(path));
}

/* A new machine: nothing is known of it. */
static void machine_new(void) {
    if (s_root[0]) CHECK_OK(omm_dir_remove(s_root));
    (void)snprintf(s_root, sizeof s_root, "/tmp/omm-guest-XXXXXX");
    CHECK(mkdtemp(s_root) != NULL);
}

static omm_guest_view look(omm_guest_rules rules) {
    omm_guest guest;
    omm_guest_init(&guest, &rules, s_root);
    return *omm_guest_look(&guest, 1, 12 * 60);
}

static omm_guest_pause pause_now(void) {
    return look(omm_guest_rules_default()).pause;
}

/* ---- hours ---- */

static omm_hours hours_of(const char *text) {
    omm_hours hours;
    CHECK_OK(omm_hours_parse(&hours, text));
    return hours;
}

static bool has(const char *text, uint32_t hour, uint32_t minute) {
    const omm_hours hours = hours_of(text);
    return omm_hours_contain(&hours, hour * 60 + minute);
}

static void hours(void) {
    CHECK(has("", 3, 0) && has("always", 3, 0));
    CHECK(has("22:00-07:00", 22, 0));
    CHECK(has("22:00-07:00", 23, 59));
    CHECK(has("22:00-07:00", 0, 0));
    CHECK(has("22:00-07:00", 6, 59));
    CHECK(!has("22:00-07:00", 7, 0));
    CHECK(!has("22:00-07:00", 21, 59));
    CHECK(has("12:00-13:30", 13, 29));
    CHECK(!has("12:00-13:30", 13, 30));
    CHECK(!has("12:00-13:30", 0, 0));
    CHECK(has("22:17-07:48", 22, 17) && has("22:17-07:48", 7, 47));
    CHECK(!has("22:17-07:48", 22, 16) && !has("22:17-07:48", 7, 48));
    CHECK(has("12:00-13:00,20:00-24:00", 23, 59));
    CHECK(!has("12:00-13:00,20:00-24:00", 0, 0));
    CHECK_EQ(hours_of("00:00-01:00,02:00-03:00,04:00-05:00,06:00-07:00").count, 4);
    static const char *const wrong[] = {
        "22-07",
        "22:00",
        "22:00-",
        "22:00-07:00,",
        ",22:00-07:00",
        "24:00-07:00",
        "25:00-07:00",
        "22:60-07:00",
        "22:0a-07:00", /* no digit where one must be */
        "22:00-07:0:",
        "22:00-07:0",
        "7:00-08:00",
        "22:00-22:00",
        "22:00-07:00 ",
        "22:00–07:00",
        "22:00-24:01",
        "Always",
        "always,22:00-07:00",
        "00:00-01:00,02:00-03:00,04:00-05:00,06:00-07:00,08:00-09:00"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        omm_hours out = {.count = 77};
        CHECK_ERR(omm_hours_parse(&out, wrong[i]), OMM_ERR_CONFIG);
        CHECK_EQ(out.count, 77);
    }
    CHECK(strstr(omm_err_sentence(), "accepted: HH:MM-HH:MM") != NULL);
    CHECK_EQ(setenv("TZ", "XYZ-5:30", 1), 0);
    tzset();
    CHECK_EQ(omm_guest_minute(0), 5 * 60 + 30);
    CHECK_EQ(omm_guest_minute((uint64_t)19 * 3600 * 1000), 30);
    machine_new();
    omm_guest_rules rules = omm_guest_rules_default();
    rules.hours_text = "22:00-07:00";
    rules.hours = hours_of(rules.hours_text);
    const omm_guest_view view = look(rules);
    CHECK_EQ(view.pause, OMM_GUEST_HOURS);
    CHECK(strcmp(view.text, "it is 12:00, outside of 22:00-07:00") == 0);
}

/* ---- power ---- */

#define BATTERY "/sys/class/power_supply/BAT0/"
#define MAINS "/sys/class/power_supply/AC/"

static void power(void) {
    machine_new();
    CHECK_EQ(pause_now(), OMM_GUEST_GO); /* no battery at all */
    put(MAINS "type", "Mains\n");
    put(MAINS "online", "1\n");
    put(BATTERY "type", "Battery\n");
    put(BATTERY "status", "Full\n");
    CHECK_EQ(pause_now(), OMM_GUEST_GO);
    put(BATTERY "status", "Discharging\n");
    omm_guest_rules rules = omm_guest_rules_default();
    CHECK(strcmp(look(rules).text, "on battery (BAT0)") == 0);
    CHECK_EQ(look(rules).pause, OMM_GUEST_BATTERY); /* a charger that is too weak */
    rules.pause_on_battery = false;
    CHECK_EQ(look(rules).pause, OMM_GUEST_GO);
    put(BATTERY "status", "Unknown\n"); /* some firmware: then the mains decide */
    CHECK_EQ(pause_now(), OMM_GUEST_GO);
    put(MAINS "online", "0\n");
    CHECK_EQ(pause_now(), OMM_GUEST_BATTERY);
    drop(BATTERY "status");
    CHECK_EQ(pause_now(), OMM_GUEST_BATTERY);
    put(BATTERY "status", "Not charging\n"); /* kept at 80 % by the firmware */
    CHECK_EQ(pause_now(), OMM_GUEST_GO);
    put("/sys/class/power_supply/hid-mouse/type", "Battery\n");
    put("/sys/class/power_supply/hid-mouse/scope", "Device\n");
    put("/sys/class/power_supply/hid-mouse/status", "Discharging\n");
    CHECK_EQ(pause_now(), OMM_GUEST_GO);
    put("/sys/class/power_supply/ups/type", "UPS\n");
    put("/sys/class/power_supply/ups/status", "Discharging\n");
    CHECK(strcmp(look(omm_guest_rules_default()).text, "on battery (ups)") == 0);
}

/* ---- heat ---- */

static void heat(void) {
    machine_new();
    const omm_guest_rules rules = omm_guest_rules_default();
    omm_guest guest;
    omm_guest_init(&guest, &rules, s_root);
    CHECK(!omm_guest_look(&guest, 1, 0)->knows_heat);
    put("/sys/class/thermal/cooling_device0/type", "Processor\n");
    put("/sys/class/thermal/thermal_zone0/type", "acpitz\n");
    put("/sys/class/thermal/thermal_zone0/temp", "84999\n");
    CHECK_EQ(pause_now(), OMM_GUEST_GO);
    put("/sys/class/thermal/thermal_zone0/temp", "85000\n"); /* the only zone counts */
    CHECK_EQ(pause_now(), OMM_GUEST_HEAT);
    put("/sys/class/thermal/thermal_zone1/type", "x86_pkg_temp\n"); /* now there is a better one */
    put("/sys/class/thermal/thermal_zone1/temp", "60000\n");
    CHECK_EQ(omm_guest_look(&guest, 2000, 0)->pause, OMM_GUEST_GO);
    put("/sys/class/hwmon/hwmon3/name", "k10temp\n");
    put("/sys/class/hwmon/hwmon3/temp1_input", "91250\n");
    CHECK_EQ(omm_guest_look(&guest, 2999, 0)->pause, OMM_GUEST_GO); /* not looked again so soon */
    CHECK_EQ(omm_guest_look(&guest, 3000, 0)->pause, OMM_GUEST_HEAT);
    CHECK(strcmp(guest.view.text, "k10temp has 91 degrees, the limit is 85") == 0);
    put("/sys/class/hwmon/hwmon3/temp1_input", "80000\n");
    CHECK_EQ(omm_guest_look(&guest, 4000, 0)->pause, OMM_GUEST_HEAT); /* not cool enough yet */
    put("/sys/class/hwmon/hwmon3/temp1_input", "79999\n");
    CHECK_EQ(omm_guest_look(&guest, 5000, 0)->pause, OMM_GUEST_GO);
    put("/sys/class/hwmon/hwmon3/temp1_input", "999999\n"); /* a sensor that is broken */
    CHECK_EQ(omm_guest_look(&guest, 6000, 0)->pause, OMM_GUEST_GO);
    put("/sys/class/hwmon/hwmon3/temp1_input", "\n");
    CHECK_EQ(omm_guest_look(&guest, 7000, 0)->pause, OMM_GUEST_GO);
    CHECK(guest.view.knows_heat);
}

/* ---- load ---- */

static void ticks(unsigned user, unsigned nice, unsigned idle, unsigned own) {
    char text[128];
    (void)snprintf(text, sizeof text, "cpu  %u %u 10 %u 0 0 0 0 0 0\ncpu0 1 1 1 1\n", user, nice,
                   idle);
    put("/proc/stat", text);
    (void)snprintf(text, sizeof text, "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 %u 0 0 0\n", own);
    put("/proc/self/stat", text);
}

static void load(void) {
    machine_new();
    const omm_guest_rules rules = omm_guest_rules_default();
    omm_guest guest;
    omm_guest_init(&guest, &rules, s_root);
    CHECK(!omm_guest_look(&guest, 1000, 0)->knows_load);
    ticks(100, 0, 100, 50);
    CHECK(omm_guest_look(&guest, 2000, 0)->knows_load);
    ticks(200, 900, 100, 950); /* busy, but by us */
    CHECK_EQ(omm_guest_look(&guest, 7000, 0)->pause, OMM_GUEST_GO);
    CHECK_EQ(guest.load_percent, 10);
    ticks(260, 900, 140, 950);                                      /* 60 of 100 */
    CHECK_EQ(omm_guest_look(&guest, 9000, 0)->pause, OMM_GUEST_GO); /* too short to say */
    CHECK_EQ(omm_guest_look(&guest, 12000, 0)->pause, OMM_GUEST_LOAD);
    CHECK(strcmp(guest.view.text,
                 "other programs take 60 % of the processors, the limit is 50 %") == 0);
    ticks(305, 900, 195, 950); /* 45: below the limit, not calm */
    CHECK_EQ(omm_guest_look(&guest, 17000, 0)->pause, OMM_GUEST_LOAD);
    ticks(315, 900, 285, 950); /* 10: once */
    CHECK_EQ(omm_guest_look(&guest, 22000, 0)->pause, OMM_GUEST_LOAD);
    ticks(325, 900, 375, 950); /* twice */
    CHECK_EQ(omm_guest_look(&guest, 27000, 0)->pause, OMM_GUEST_GO);
    ticks(1, 0, 1, 1); /* counters that went back */
    CHECK_EQ(omm_guest_look(&guest, 32000, 0)->pause, OMM_GUEST_GO);
    put("/proc/stat", "intr 1\n");
    CHECK(!omm_guest_look(&guest, 37000, 0)->knows_load);
    put("/proc/self/stat", "no bracket");
    ticks(9, 9, 9, 9);
    CHECK(omm_guest_look(&guest, 42000, 0)->knows_load);
    ticks(59, 9, 59, 9); /* 50 of 100: the limit is allowed */
    CHECK_EQ(omm_guest_look(&guest, 47000, 0)->pause, OMM_GUEST_GO);
    CHECK_EQ(guest.load_percent, 50);
    ticks(110, 9, 108, 9); /* 51 */
    CHECK_EQ(omm_guest_look(&guest, 52000, 0)->pause, OMM_GUEST_LOAD);
    CHECK_EQ(omm_guest_look(&guest, 57000, 0)->pause, OMM_GUEST_LOAD); /* no tick since then */
    CHECK_EQ(guest.load_percent, 51);
    put("/proc/stat", "intr 1\n"); /* what is not known any more does not pause, nor afterwards */
    CHECK_EQ(omm_guest_look(&guest, 58000, 0)->pause, OMM_GUEST_GO);
    ticks(111, 9, 109, 9);
    CHECK_EQ(omm_guest_look(&guest, 59000, 0)->pause, OMM_GUEST_GO);
}

/* Every way to be busy counts, each once; to wait for a disk, or for the machine below, is none. */
static void kinds_of_load(void) {
    static const size_t more[8] = {7, 6, 5, 30, 20, 4, 3, 25}; /* 25 of 100 */
    const omm_guest_rules rules = omm_guest_rules_default();
    omm_guest guest;
    machine_new();
    omm_guest_init(&guest, &rules, s_root);
    put("/proc/self/stat", "7 (a) S 1 2 3 4 5 6 7 8 9 10 3 2 0 0\n");
    for (size_t time = 0; time < 2; time++) {
        char text[200] = "cpu ";
        for (size_t i = 0; i < 8; i++)
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), " %zu",
                           100 * (i + 1) + time * more[i]);
        put("/proc/stat", text);
        if (time == 1) put("/proc/self/stat", "7 (a) S 1 2 3 4 5 6 7 8 9 10 5 4 0 0\n");
        (void)omm_guest_look(&guest, 1000 + 5000 * time, 0);
    }
    CHECK(guest.view.knows_load);
    CHECK_EQ(guest.load_percent, 21); /* 4 of them ours, in both of its kinds */
}

/* What is ours is counted at other moments than what all do, and may be more; where it is not known, nothing is said. */
static void own_load(void) {
    static const char *const unknown[] = {"no bracket", "7 (a) S 1 2 3 4 5 6 7 8 9 10 5\n",
                                          "7 (a) S 1 2 3 4 5 6 7 8 9 10 x 5\n",
                                          "7 (a) S 1 2 3 4 5 6 7 8 9 10 5 x\n", "7 (a) S 1\n"};
    const omm_guest_rules rules = omm_guest_rules_default();
    omm_guest guest;
    machine_new();
    omm_guest_init(&guest, &rules, s_root);
    ticks(100, 0, 100, 50);
    (void)omm_guest_look(&guest, 1000, 0);
    ticks(130, 0, 170, 81);
    CHECK_EQ(omm_guest_look(&guest, 6000, 0)->pause, OMM_GUEST_GO);
    CHECK_EQ(guest.load_percent, 0);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        put("/proc/self/stat", unknown[i]);
        CHECK(!omm_guest_look(&guest, 11000 + 5000 * i, 0)->knows_load);
    }
}

/* ---- network ---- */

#define HEAD "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"

static omm_guest_pause on_network(const char *routes, const char *named) {
    omm_guest_rules rules = omm_guest_rules_default();
    rules.metered = named;
    put("/proc/net/route", routes);
    return look(rules).pause;
}

static void driver(const char *interface, const char *name) {
    char path[OMM_PATH_MAX], target[128];
    (void)snprintf(path, sizeof path, "%s/sys/class/net/%s/device", s_root, interface);
    CHECK_OK(omm_dir_make(path));
    (void)snprintf(path, sizeof path, "%s/sys/class/net/%s/device/driver", s_root, interface);
    (void)snprintf(target, sizeof target, "../../../../bus/usb/drivers/%s", name);
    CHECK_EQ(symlink(target, path), 0);
}

static void network(void) {
    machine_new();
    CHECK(!look(omm_guest_rules_default()).knows_network);
    static const char home[] = HEAD "eth0 00000000 0101A8C0 0003 0 0 100 00000000 0 0 0\n"
                                    "eth0 0001A8C0 00000000 0001 0 0 100 00FFFFFF 0 0 0\n";
    CHECK_EQ(on_network(home, NULL), OMM_GUEST_GO);
    CHECK(look(omm_guest_rules_default()).knows_network);
    CHECK_EQ(on_network(home, "wlan0,eth1"), OMM_GUEST_GO);
    CHECK_EQ(on_network(home, "eth01,eth"), OMM_GUEST_GO); /* whole names */
    CHECK_EQ(on_network(home, "wlan0,eth0"), OMM_GUEST_METERED);
    /* Half of all addresses, and a default route that is closed, are not where all else goes. */
    CHECK_EQ(on_network(HEAD "wwan0 00000000 00000000 0001 0 0 0 00000080 0 0 0\n"
                             "wwan0 00000000 00000000 0201 0 0 1 00000000 0 0 0\n"
                             "wwan0 00000000 00000000 0000 0 0 2 00000000 0 0 0\n"
                             "eth0 00000000 0101A8C0 0003 0 0 100 00000000 0 0 0\n",
                        NULL),
             OMM_GUEST_GO);
    CHECK_EQ(on_network(HEAD "wwan0 00000000 00000000 0001 0 0 700 00000000 0 0 0\n", NULL),
             OMM_GUEST_METERED);
    /* The better route counts. */
    CHECK_EQ(on_network(HEAD "wwan0 00000000 00000000 0001 0 0 700 00000000 0 0 0\n"
                             "wlan0 00000000 0101A8C0 0003 0 0 600 00000000 0 0 0\n",
                        NULL),
             OMM_GUEST_GO);
    CHECK_EQ(on_network(HEAD "wlan0 00000000 0101A8C0 0003 0 0 600 00000000 0 0 0\n"
                             "wwan0 00000000 00000000 0001 0 0 700 00000000 0 0 0\n",
                        NULL),
             OMM_GUEST_GO);
    static const char phone[] = HEAD "enp0s20 00000000 0101A8C0 0003 0 0 100 00000000 0 0 0\n";
    driver("enp0s20", "r8152"); /* a dock */
    CHECK_EQ(on_network(phone, NULL), OMM_GUEST_GO);
    drop("/sys/class/net/enp0s20/device/driver");
    driver("enp0s20", "rndis_host");
    CHECK_EQ(on_network(phone, NULL), OMM_GUEST_METERED);
    put("/sys/class/net/wwp1/uevent", "INTERFACE=wwp1\nDEVTYPE=wwan\n");
    CHECK_EQ(on_network(HEAD "wwp1 00000000 00000000 0001 0 0 1 00000000 0 0 0\n", NULL),
             OMM_GUEST_METERED);
    put("/proc/net/ipv6_route",
        "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
        "fe800000000000000000000000000001 00000400 00000001 00000000 00000003 bnep0\n"
        "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
        "00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo\n");
    CHECK_EQ(on_network(HEAD, NULL), OMM_GUEST_METERED); /* IPv6 alone, over Bluetooth */
    omm_guest_rules rules = omm_guest_rules_default();
    rules.pause_on_metered = false;
    CHECK_EQ(look(rules).pause, OMM_GUEST_GO);
}

/* ---- pace ---- */

static void pace(void) {
    omm_pace p;
    omm_pace_init(&p, 25, 4, 1000, 500); /* one processor's worth */
    CHECK_EQ(omm_pace_owed_ns(&p, 1000, 500), 0);
    CHECK_EQ(omm_pace_owed_ns(&p, 1000 + 1000000, 500 + 4000000), 3000000);
    CHECK_EQ(omm_pace_owed_ns(&p, 1000 + 4000000, 500 + 4000000), 0);
    /* An hour of nothing saves one second, not an hour. */
    const uint64_t hour = (uint64_t)3600 * 1000000000u;
    CHECK_EQ(omm_pace_owed_ns(&p, hour, 500 + 4000000), 0);
    CHECK_EQ(omm_pace_owed_ns(&p, hour, 500 + 4000000 + (uint64_t)3000000000u), 2000000000);
    omm_pace_init(&p, 100, 4, 0, 0);
    CHECK_EQ(omm_pace_owed_ns(&p, 1, (uint64_t)1 << 40), 0);
    /* And with real work: a fifth of one processor, in pieces of about 10 ms. */
    struct timespec t;
    CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    const uint64_t begin = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    const uint64_t cpu = omm_process_cpu_ns();
    uint64_t now = begin;
    omm_pace_init(&p, 20, 1, begin, cpu);
    while (now - begin < 1500000000u) {
        for (const uint64_t from = omm_process_cpu_ns(); omm_process_cpu_ns() - from < 10000000u;) {
        }
        CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &t), 0);
        now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        const uint64_t owed = omm_pace_owed_ns(&p, now, omm_process_cpu_ns());
        const struct timespec rest = {(time_t)(owed / 1000000000u), (long)(owed % 1000000000u)};
        CHECK_EQ(nanosleep(&rest, NULL), 0);
        now += owed;
    }
    const uint64_t used = omm_process_cpu_ns() - cpu;
    CHECK(used * 100 <= (now - begin) * 23);
}

int main(void) {
    hours();
    power();
    heat();
    load();
    kinds_of_load();
    own_load();
    network();
    pace();
    CHECK_OK(omm_dir_remove(s_root));
    return 0;
}
