/* The stage kills exactly once, and only where it is wanted. */
#include "omm/crash.h"

#include "omm/file.h"
#include "omm_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static int run_child(const char *dir, const char *wanted, const char *stage) {
    pid_t pid = fork();
    if (pid == 0) {
        omm_crash_point(dir, wanted, stage);
        _exit(7);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int main(void) {
    char dir[] = "/tmp/omm-crash-XXXXXX";
    CHECK(mkdtemp(dir));
    CHECK_OK(omm_crash_check(NULL));
    CHECK_OK(omm_crash_check(""));
    CHECK_OK(omm_crash_check("mid_upload"));
    CHECK_ERR(omm_crash_check("mid_uploads"), OMM_ERR_CONFIG);
    CHECK_EQ(run_child(dir, "mid_upload", "after_offer"), 7);
    CHECK_EQ(run_child(NULL, "mid_upload", "mid_upload"), 7);
    CHECK_EQ(run_child(dir, NULL, "mid_upload"), 7);
    CHECK_EQ(run_child(dir, "mid_upload", "mid_upload"), -SIGKILL);
    CHECK_EQ(run_child(dir, "mid_upload", "mid_upload"), 7);
    CHECK_OK(omm_dir_remove(dir));
    return 0;
}
