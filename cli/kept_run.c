/* kept_run.c - see kept_run.h. */
#include "kept_run.h"

#include "signals.h"

#include "omm/file.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_bool s_stop;

static void on_signal(int number) {
    (void)number;
    atomic_store(&s_stop, true);
}

bool kept_run_is_stopped(void *ud) {
    (void)ud;
    return atomic_load(&s_stop);
}

omm_err kept_run_take_signals(void) {
    return cli_take_signals(on_signal, (int)SA_RESETHAND);
}

omm_err kept_run_check(const char *path, uint32_t every, bool resume) {
    if (resume && !path) return omm_raise(OMM_ERR_USAGE, "--resume needs --checkpoint FILE");
    if (!every) return omm_raise(OMM_ERR_USAGE, "--checkpoint-every 0; accepted: 1 and more");
    return OMM_OK;
}

omm_err kept_run_check_there(const char *path, bool resume) {
    if (!path || resume || !omm_file_exists(path)) return OMM_OK;
    return omm_raise(OMM_ERR_USAGE,
                     "%s is there already: --resume goes on with it; remove it to begin again",
                     path);
}

omm_err kept_run_open(bool *there, kept_run *run, bool resume) {
    *there = false;
    OMM_TRY(kept_run_check_there(run->path, resume));
    *there = run->path && omm_file_exists(run->path);
    if (!*there) return OMM_OK;
    omm_buf file;
    omm_buf_init(&file, run->bytes_max);
    omm_err err = omm_file_state_read(&run->last, run->path);
    run->is_ours = err == OMM_OK;
    if (err == OMM_OK) err = omm_file_read(&file, run->path);
    if (err == OMM_OK) {
        err = run->load(run->ud, omm_buf_view(&file));
        if (err != OMM_OK)
            err = omm_raise(err, "--checkpoint %s: %s", run->path, omm_err_sentence());
    }
    omm_buf_fini(&file);
    return err;
}

/* A line that cannot be written stops no run. */
static void tell(const kept_run *run, json_t *event) {
    if (!event || !run->json) {
        json_decref(event);
        return;
    }
    const omm_err ignored = kept_run_print_event(event);
    (void)ignored;
}

/* Of two runs that were given one checkpoint each would write over what the other goes on from. */
static omm_err check_ours(const kept_run *run) {
    omm_file_state now;
    if (omm_file_state_read(&now, run->path) != OMM_OK) return OMM_OK; /* none is there */
    if (run->is_ours && now.inode == run->last.inode && now.modified_ns == run->last.modified_ns)
        return OMM_OK;
    return omm_raise(OMM_ERR_STATE,
                     "--checkpoint %s: another program has written it meanwhile, and what it holds "
                     "stays: each run needs a checkpoint of its own",
                     run->path);
}

omm_err kept_run_save(kept_run *run, uint32_t step) {
    if (!run->path) return OMM_OK;
    OMM_TRY(check_ours(run));
    omm_buf file;
    omm_buf_init(&file, run->bytes_max);
    omm_err err = run->save(run->ud, &file);
    if (err == OMM_OK) err = omm_file_write(run->path, omm_buf_view(&file), 0644);
    if (err == OMM_OK) err = omm_file_state_read(&run->last, run->path);
    run->is_ours = run->is_ours || err == OMM_OK;
    omm_buf_fini(&file);
    if (err == OMM_OK)
        tell(run, json_pack("{s:s,s:I,s:o}", "event", "checkpoint", "step", (json_int_t)step,
                            "file", omm_json_text(run->path)));
    return err;
}

/* A checkpoint is larger than what comes of the run, which is written where this one has no room. */
void kept_run_save_last(kept_run *run, uint32_t step, const char *out) {
    if (kept_run_save(run, step) != OMM_OK)
        fprintf(stderr, "the last checkpoint: %s; %s is written all the same\n", omm_err_sentence(),
                out);
}

void kept_run_tell_interrupted(const kept_run *run, uint32_t step, uint32_t steps,
                               const char *kept) {
    tell(run,
         json_pack("{s:s,s:I,s:I,s:o}", "event", "interrupted", "step", (json_int_t)step, "steps",
                   (json_int_t)steps, "kept", kept ? omm_json_text(kept) : json_null()));
}

omm_err kept_run_stopped(kept_run *run, uint32_t step, uint32_t steps) {
    OMM_TRY(kept_run_save(run, step));
    kept_run_tell_interrupted(run, step, steps, run->path);
    if (!run->path)
        return omm_raise(OMM_ERR_CANCELLED,
                         "stopped after step %u of %u: nothing of it is kept; with --checkpoint "
                         "FILE it would be, and the same command with --resume would go on",
                         step, steps);
    return omm_raise(OMM_ERR_CANCELLED,
                     "stopped after step %u of %u; %s keeps it: the same command with --resume "
                     "goes on",
                     step, steps, run->path);
}

omm_err kept_run_print_event(json_t *taken) {
    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    omm_err err = taken ? omm_json_write(&text, taken) : omm_raise(OMM_ERR_NOMEM, "out of memory");
    if (err == OMM_OK) fwrite(text.data, 1, text.size, stdout);
    fflush(stdout);
    omm_buf_fini(&text);
    json_decref(taken);
    return err;
}
