/* topology_test.c - fixture trees: SMT siblings, fast and slow cores, quotas, affinity, and files
 * that are missing or wrong. */
#include "omm/topology.h"

#include "omm/file.h"
#include "omm/pool.h"
#include "omm_test.h"

#include <stdlib.h>
#include <string.h>

static char s_root[] = "/tmp/omm-topology-XXXXXX";
static char s_cpu[64], s_group[64];

static void put(const char *folder, const char *name, const char *text) {
    char path[512], parent[OMM_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(omm_path_dir(parent, path));
    CHECK_OK(omm_dir_make(parent));
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str(text), 0644));
}

static void put_cpu(unsigned cpu, const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "cpu%u/%s", cpu, name);
    put(s_cpu, path, text);
}

static void clear(void) {
    CHECK_OK(omm_dir_remove(s_cpu));
    CHECK_OK(omm_dir_remove(s_group));
    CHECK_OK(omm_dir_make(s_cpu));
    CHECK_OK(omm_dir_make(s_group));
}

static omm_topology read_as(const char *allowed) {
    omm_topology t;
    const omm_topology_source s = {
        .cpu_folder = s_cpu, .group = s_group, .group_root = s_root, .allowed = allowed};
    omm_topology_read(&t, &s);
    CHECK(t.cpus >= t.cores && t.cores >= t.performance && t.performance >= 1);
    CHECK(t.threads >= 1 && t.threads <= t.cores);
    return t;
}

static void check(const char *allowed, unsigned cpus, unsigned cores, unsigned performance,
                  unsigned threads) {
    const omm_topology t = read_as(allowed);
    CHECK_EQ(t.cpus, cpus);
    CHECK_EQ(t.cores, cores);
    CHECK_EQ(t.performance, performance);
    CHECK_EQ(t.threads, threads);
}

/* Four cores of two: siblings are n and n + 4, as on most PCs. */
static void test_siblings(void) {
    static const char *const lists[] = {"0,4\n", "1,5\n", "2,6\n", "3,7\n"};
    for (int old = 0; old < 2; old++) {
        clear();
        for (unsigned i = 0; i < 8; i++)
            put_cpu(i, old ? "topology/thread_siblings_list" : "topology/core_cpus_list",
                    lists[i % 4]);
        put(s_cpu, "online", "0-7\n");
        check("0-7", 8, 4, 4, 4);
        check("0-3", 4, 4, 4, 4);
        check("0,4", 2, 1, 1, 1); /* one core, both its threads */
        check("4-7", 4, 4, 4, 4); /* the other halves */
        check("1,4-5", 3, 2, 2, 2);
        put(s_cpu, "online", "0-2\n"); /* some are switched off */
        check("0-7", 3, 3, 3, 3);
        check("6-7", 2, 2, 2, 2); /* nothing in common: the affinity is right */
    }
}

/* Two fast cores of two threads and four slow ones, told by capacity or by frequency. */
static void test_hybrid(void) {
    static const char *const lists[] = {"0-1\n", "0-1\n", "2-3\n", "2-3\n"};
    for (int frequency = 0; frequency < 2; frequency++) {
        clear();
        for (unsigned i = 0; i < 8; i++) {
            if (i < 4) put_cpu(i, "topology/core_cpus_list", lists[i]);
            if (frequency) put_cpu(i, "cpu_capacity", "1024\n"); /* nobody set them */
            if (frequency)
                put_cpu(i, "cpufreq/cpuinfo_max_freq",
                        i < 2   ? "5200000\n"
                        : i < 4 ? "5000000\n"
                                : "3900000\n");
            else
                put_cpu(i, "cpu_capacity", i < 4 ? "1024\n" : "446\n");
        }
        check("0-7", 8, 6, 2, 6);
        check("4-7", 4, 4, 4, 4); /* alone, they are the fastest */
        check("0-1,4", 3, 2, 1, 2);
    }
}

static void test_quota(void) {
    clear();
    put(s_group, "cpu.max", "200000 100000\n");
    check("0-7", 8, 8, 8, 2);
    CHECK(read_as("0-7").quota == 2.0);
    put(s_group, "cpu.max", "350000 100000\n");
    check("0-7", 8, 8, 8, 3);
    put(s_group, "cpu.max", "50000 100000\n");
    check("0-7", 8, 8, 8, 1);
    put(s_group, "cpu.max", "max 100000\n");
    check("0-7", 8, 8, 8, 8);
    CHECK(read_as("0-7").quota == 0.0);
    put(s_root, "cpu.max", "400000 100000\n"); /* of the group above */
    check("0-7", 8, 8, 8, 4);
    put(s_group, "cpu.max", "300000 100000\n");
    check("0-7", 8, 8, 8, 3);
    put(s_root, "cpu.max", "200000 100000\n"); /* tighter than the group below */
    check("0-7", 8, 8, 8, 2);
    put(s_root, "cpu.max", "max 100000\n");
    clear();
    put(s_group, "cpu.cfs_quota_us", "-1\n");
    put(s_group, "cpu.cfs_period_us", "100000\n");
    check("0-7", 8, 8, 8, 8);
    put(s_group, "cpu.cfs_quota_us", "600000\n");
    check("0-7", 8, 8, 8, 6);
}

static void test_wrong_files(void) {
    static const char *const lists[] = {"",      "\n",   "x",    "1-",   "5-2",
                                        "1,,2",  "-1",   "0-3x", "9999", "99999999999999999999",
                                        "0-3,a", "2000-"};
    clear();
    check("0-3", 4, 4, 4, 4); /* no files at all */
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (unsigned cpu = 0; cpu < 4; cpu++) {
            put_cpu(cpu, "topology/core_cpus_list", lists[i]);
            put_cpu(cpu, "cpu_capacity", lists[i]);
        }
        put(s_cpu, "online", lists[i]);
        const omm_topology t = read_as("0-3");
        CHECK(t.cpus >= 1 && t.cpus <= 4);
        CHECK_EQ(t.cores, t.cpus);
        CHECK(read_as(lists[i]).cpus >= 1); /* the affinity instead */
    }
    static const char *const quotas[] = {"",    "max",    "5",        "5 ",
                                         "5 0", "-5 100", "x 100000", "0 100000"};
    clear();
    for (size_t i = 0; i < sizeof quotas / sizeof *quotas; i++) {
        put(s_group, "cpu.max", quotas[i]);
        check("0-3", 4, 4, 4, 4);
    }
    /* Siblings that do not name the processor itself. */
    clear();
    put_cpu(0, "topology/core_cpus_list", "2-3");
    check("0-1", 2, 2, 2, 2);
}

static void test_this_machine(void) {
    omm_topology t;
    omm_topology_read(&t, NULL);
    CHECK(t.cpus >= 1 && t.cores >= 1 && t.cores <= t.cpus && t.performance <= t.cores);
    CHECK_EQ(omm_cpu_count(), t.cpus);
    CHECK(omm_threads_default() >= 1 && omm_threads_default() <= OMM_POOL_THREADS_MAX);
    printf("this machine: %u processors, %u cores, %u of them fast, quota %.2f, %u threads\n",
           t.cpus, t.cores, t.performance, t.quota, t.threads);
}

int main(void) {
    CHECK(mkdtemp(s_root) != NULL);
    snprintf(s_cpu, sizeof s_cpu, "%s/cpu", s_root);
    snprintf(s_group, sizeof s_group, "%s/group", s_root);
    test_siblings();
    test_hybrid();
    test_quota();
    test_wrong_files();
    test_this_machine();
    CHECK_OK(omm_dir_remove(s_root));
    return 0;
}
