/* cmd_chat.c - `meshmind chat`: a conversation at the terminal or from a pipe, with tools. */
#include "chat_view.h"
#include "commands.h"
#include "decoding.h"
#include "places.h"

#include "omm/assistant.h"
#include "omm/clock.h"
#include "omm/file.h"
#include "omm/session_file.h"

#include <editline/readline.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOTES_LISTED_MAX 100u
#define DEFAULT_MODEL "scenarios/base/openmeshmind-tiny-F16.gguf"

typedef struct chat_options {
    loaded_options common;
    decoding_options decoding; /* look-up alone */
    form_options form;         /* of each answer */
    const char *docs, *notes, *system;
    bool no_notes, json, stats, no_think;
    uint32_t tokens, calls;
    omm_sampler sampler; /* without its lane */
    uint64_t seed;
} chat_options;

/* Everything that must be released, in one place. */
typedef struct chat {
    chat_options options;
    loaded loaded;
    omm_notes *notes;
    omm_docs *docs;
    omm_model_speaker *speaker;
    omm_grammar *grammar; /* NULL: any answer */
    omm_assistant *assistant;
    omm_clock clock;
    chat_view view;
    omm_digest model; /* with --session */
    bool terminal;
    char notes_path[OMM_PATH_MAX];
} chat;

static volatile sig_atomic_t s_interrupt;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    s_interrupt = 1;
}

/* ---- Opening ------------------------------------------------------------------------------- */

/* Before the model is loaded: where there is no place for them it need not be. */
static omm_err find_notes(chat *c) {
    struct stat at;
    if (c->options.no_notes) return OMM_OK;
    if (c->options.notes)
        OMM_TRY(omm_path_join(c->notes_path, ".", c->options.notes));
    else
        OMM_TRY(place_path(c->notes_path, PLACE_DATA, "notes.sqlite"));
    OMM_TRY(place_check_unsealed("--notes", c->notes_path));
    if (stat(c->notes_path, &at) == 0 && !S_ISREG(at.st_mode))
        return omm_raise(OMM_ERR_USAGE, "--notes %s is no regular file", c->notes_path);
    return OMM_OK;
}

static omm_err open_notes(chat *c) {
    char dir[OMM_PATH_MAX];
    if (c->options.no_notes) return OMM_OK;
    OMM_TRY(omm_path_dir(dir, c->notes_path));
    mode_t mask = umask(077); /* notes are nobody else's business */
    omm_err err = omm_dir_make(dir);
    if (err == OMM_OK) err = omm_notes_open(&c->notes, c->notes_path);
    umask(mask);
    if (err == OMM_ERR_STATE)
        return omm_raise(err, "%s is open in another chat: give --notes FILE or --no-notes",
                         c->notes_path);
    return err;
}

static omm_model_speaker_options speaker_options(const chat_options *o) {
    omm_model_speaker_options options = omm_model_speaker_options_default();
    options.reply_tokens_max = o->tokens;
    options.sampler = o->sampler;
    options.seed = o->seed;
    options.lookup = decoding_drafts(&o->decoding);
    options.at_once = o->no_think;
    options.interrupt = &s_interrupt;
    return options;
}

static omm_err open_speaker(chat *c) {
    omm_model_speaker_options options = speaker_options(&c->options);
    options.grammar = c->grammar;
    return omm_model_speaker_open(&c->speaker, c->loaded.session, c->loaded.tokenizer,
                                  c->loaded.model.dims.vocab, &options);
}

static omm_err open_assistant(chat *c) {
    omm_assistant_options options = omm_assistant_options_default();
    options.speaker = omm_model_speaker_get(c->speaker);
    if (c->options.system) options.system = c->options.system;
    options.notes = c->notes;
    options.docs = c->docs;
    options.now_ms = c->clock.wall_ms;
    options.now_ud = c->clock.ud;
    options.calls_max = c->options.calls;
    options.at_length = ": -n N takes more tokens";
    const uint32_t most = omm_session_positions_max(c->loaded.session);
    options.at_context = most < c->loaded.memory.asked         ? " (more memory takes more)"
                         : most < c->loaded.model.dims.context ? " (-c N takes more)"
                                                               : "";
    options.each = chat_view_event;
    options.each_ud = &c->view;
    return omm_assistant_open(&c->assistant, &options);
}

static omm_err check_options(const chat_options *o) {
    const omm_model_speaker_options speaker = speaker_options(o);
    if (o->calls < 1 || o->calls > 64)
        return omm_raise(OMM_ERR_USAGE, "--calls %u: choose 1 to 64", o->calls);
    if (o->tokens < 1) return omm_raise(OMM_ERR_USAGE, "-n 0: an answer has at least 1 token");
    if (o->common.positions > 0 && o->common.positions <= speaker.room_tokens)
        return omm_raise(OMM_ERR_USAGE, "-c %u: room for an answer takes %u, a question more",
                         o->common.positions, speaker.room_tokens);
    if (o->no_notes && o->notes)
        return omm_raise(OMM_ERR_USAGE, "--notes and --no-notes exclude each other");
    if (decoding_has_form(&o->form) && o->docs)
        return omm_raise(OMM_ERR_USAGE, "--docs: an answer that has to be JSON looks up nothing");
    OMM_TRY(decoding_check_sampling(&o->sampler));
    if (o->decoding.drafts && !o->decoding.lookup)
        return omm_raise(OMM_ERR_USAGE, "--drafts: together with --lookup");
    OMM_TRY(decoding_check(&o->decoding));
    return omm_model_speaker_check(&speaker);
}

/* ---- The conversation in a file ------------------------------------------------------------ */

/* A session file whose note is: u32 answers so far (of the speaker), turns (of the assistant). */
static omm_err save(chat *c) {
    omm_buf note;
    if (!c->options.common.session) return OMM_OK;
    omm_buf_init(&note, OMM_SESSION_NOTE_MAX);
    omm_err err = omm_buf_put_u32(&note, omm_model_speaker_replies(c->speaker));
    if (err == OMM_OK) err = omm_assistant_save(&note, c->assistant);
    if (err == OMM_OK)
        err = omm_session_save(c->loaded.session, c->options.common.session, &c->model,
                               omm_buf_view(&note));
    if (err == OMM_OK) err = session_lock_take(&c->loaded.lock, c->options.common.session);
    omm_buf_fini(&note);
    return err;
}

static omm_err restore(chat *c, omm_bytes note) {
    char why[512];
    omm_reader r = omm_reader_of(note);
    omm_model_speaker_set_replies(c->speaker, omm_read_u32(&r));
    omm_err err = omm_assistant_restore(c->assistant, omm_read_bytes(&r, note.size - r.at));
    if (err == OMM_OK || err == OMM_ERR_NOMEM) return err;
    snprintf(why, sizeof why, "%s", omm_err_sentence());
    return omm_raise(
        err, "%s: %s%s", c->options.common.session, why,
        err == OMM_ERR_MISMATCH
            ? " (--system, --docs, --no-notes, --json-schema): give the same, or another file"
            : "");
}

/* Go on where the file ends; a new one is begun at once, so that a place where it cannot be is known
 * before anything is said. */
static omm_err open_file(chat *c) {
    omm_buf note;
    if (!c->options.common.session) return OMM_OK;
    OMM_TRY(loaded_digest(&c->model, &c->options.common));
    if (!omm_file_exists(c->options.common.session)) {
        OMM_TRY(place_make_output(NULL, c->options.common.session, "--session"));
        return save(c);
    }
    OMM_TRY(session_lock_take(&c->loaded.lock, c->options.common.session));
    omm_buf_init(&note, OMM_SESSION_NOTE_MAX);
    omm_err err = omm_session_load(c->loaded.session, c->options.common.session, &c->model, &note);
    if (err == OMM_OK) err = restore(c, omm_buf_view(&note));
    omm_buf_fini(&note);
    OMM_TRY(err);
    return chat_view_say(&c->view, "going on from %s: %zu turns", c->options.common.session,
                         omm_assistant_turns(c->assistant) - 1);
}

/* The model that is shipped is where whoever stands in the repository's folder finds it. */
static omm_err choose_model(chat_options *o) {
    if (o->common.model) return OMM_OK;
    o->common.model = DEFAULT_MODEL;
    if (omm_file_exists(DEFAULT_MODEL)) return OMM_OK;
    return omm_raise(OMM_ERR_USAGE, "which model? give -m FILE: there is no %s here",
                     DEFAULT_MODEL);
}

static omm_err open_all(chat *c) {
    OMM_TRY(check_options(&c->options));
    OMM_TRY(decoding_read_form(&c->grammar, &c->options.form));
    OMM_TRY(choose_model(&c->options));
    OMM_TRY(find_notes(c));
    if (c->options.docs) OMM_TRY(omm_docs_open(&c->docs, c->options.docs));
    OMM_TRY(loaded_open(&c->loaded, &c->options.common, true));
    cli_warn_template(c->loaded.tokenizer);
    if (c->options.no_think) cli_warn_thinking(c->loaded.tokenizer);
    OMM_TRY(open_notes(c));
    OMM_TRY(open_speaker(c));
    OMM_TRY(open_assistant(c));
    return open_file(c);
}

static void close_all(chat *c) {
    omm_assistant_close(c->assistant);
    omm_model_speaker_close(c->speaker);
    omm_grammar_close(c->grammar);
    omm_docs_close(c->docs);
    omm_notes_close(c->notes);
    loaded_close(&c->loaded);
    chat_view_fini(&c->view);
}

/* ---- Commands inside the chat -------------------------------------------------------------- */

static omm_err command_help(chat *c, const char *rest) {
    (void)rest;
    return chat_view_say(&c->view, "/help  /quit  /reset: forget this conversation  /notes: list "
                                   "them  /forget N: remove note N  /docs: what is read");
}

static omm_err command_reset(chat *c, const char *rest) {
    (void)rest;
    omm_assistant_reset(c->assistant);
    (void)omm_session_truncate(c->loaded.session, 0); /* nor does the file keep it */
    OMM_TRY(save(c));
    return chat_view_say(&c->view, "the conversation is forgotten; notes and documents stay");
}

static omm_err show_note(void *ud, int64_t id, omm_bytes text) {
    return chat_view_say(ud, "note %lld: %.*s", (long long)id, (int)text.size,
                         (const char *)text.data);
}

static omm_err command_notes(chat *c, const char *rest) {
    uint64_t count = 0;
    (void)rest;
    if (!c->notes) return chat_view_say(&c->view, "no notes are kept in this chat");
    OMM_TRY(omm_notes_count(&count, c->notes));
    OMM_TRY(omm_notes_list(c->notes, 0, NOTES_LISTED_MAX, show_note, &c->view));
    return chat_view_say(&c->view, "%llu notes", (unsigned long long)count);
}

/* A folder or disk that fails now is no reason to end, as it is none where the model asks. */
static omm_err say_why(chat *c, omm_err err) {
    return err == OMM_ERR_NOMEM ? err : chat_view_say(&c->view, "%s", omm_err_sentence());
}

static omm_err command_forget(chat *c, const char *rest) {
    char *end = NULL;
    long long id = strtoll(rest, &end, 10);
    if (!c->notes) return chat_view_say(&c->view, "no notes are kept in this chat");
    if (end == rest || *end) return chat_view_say(&c->view, "which note? /forget N, see /notes");
    omm_err err = omm_notes_remove(c->notes, id);
    if (err != OMM_OK) return say_why(c, err);
    return chat_view_say(&c->view, "note %lld is removed", id);
}

static omm_err command_docs(chat *c, const char *rest) {
    (void)rest;
    if (!c->docs) return chat_view_say(&c->view, "no documents: start with --docs FOLDER");
    const omm_err err = omm_docs_refresh(NULL, c->docs);
    if (err != OMM_OK) return say_why(c, err);
    omm_docs_counts n = omm_docs_get_counts(c->docs);
    return chat_view_say(&c->view, "%u passages from %u files of %s; %u files skipped", n.passages,
                         n.files, c->options.docs, n.skipped);
}

static const struct {
    const char *name;
    omm_err (*run)(chat *c, const char *rest);
} s_commands[] = {{"/help", command_help},
                  {"/reset", command_reset},
                  {"/notes", command_notes},
                  {"/forget", command_forget},
                  {"/docs", command_docs}};

static omm_err run_command(chat *c, const char *line) {
    size_t size = strcspn(line, " ");
    const char *rest = line + size + strspn(line + size, " ");
    for (size_t i = 0; i < sizeof s_commands / sizeof s_commands[0]; i++)
        if (strlen(s_commands[i].name) == size && memcmp(s_commands[i].name, line, size) == 0)
            return s_commands[i].run(c, rest);
    return chat_view_say(&c->view, "there is no command %.*s: see /help", (int)size, line);
}

/* ---- Lines --------------------------------------------------------------------------------- */

/* Ctrl-C stops an answer, and once more ends the program; at the prompt it does so as usual. */
static omm_err say(chat *c, omm_bytes text) {
    const struct sigaction action = {.sa_handler = on_interrupt,
                                     .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    struct sigaction before;
    s_interrupt = 0;
    sigaction(SIGINT, &action, &before);
    omm_err err = omm_assistant_say(c->assistant, text);
    sigaction(SIGINT, &before, NULL);
    /* what the user can do better is no reason to end */
    if (err == OMM_ERR_FORMAT || err == OMM_ERR_TOO_BIG)
        return chat_view_say(&c->view, "%s", omm_err_sentence());
    return err;
}

static omm_err take_line(bool *quit, chat *c, char *line, size_t size) {
    while (size > 0 && (line[size - 1] == '\n' || line[size - 1] == '\r')) line[--size] = '\0';
    while (line[0] == '/' && line[size - 1] == ' ') line[--size] = '\0';
    if (size == 0) return OMM_OK;
    if (!c->terminal &&
        size <= OMM_ASSISTANT_USER_BYTES_MAX) /* more is refused, whatever it says */
        OMM_TRY(chat_view_user(&c->view, omm_bytes_of(line, size)));
    *quit = strcmp(line, "/quit") == 0;
    if (*quit) return OMM_OK;
    const omm_model_speaker_usage before = omm_model_speaker_get_usage(c->speaker);
    OMM_TRY(line[0] == '/' ? run_command(c, line) : say(c, omm_bytes_of(line, size)));
    const omm_model_speaker_usage after = omm_model_speaker_get_usage(c->speaker);
    OMM_TRY(chat_view_end(&c->view, &before, &after));
    return save(c);
}

static omm_err from_pipe(chat *c) {
    char *line = NULL;
    size_t capacity = 0;
    bool quit = false;
    omm_err err = OMM_OK;
    while (err == OMM_OK && !quit) {
        ssize_t size = getline(&line, &capacity, stdin);
        if (size < 0) break;
        err = take_line(&quit, c, line, (size_t)size);
    }
    free(line);
    if (err == OMM_OK && ferror(stdin)) err = omm_raise(OMM_ERR_IO, "cannot read the input");
    return err;
}

/* The line editor takes characters as the locale has them, and drops those that it cannot have: where the locale is not of
 * UTF-8 ("C"), one that is. */
static void set_characters(void) {
    static const char *const others[] = {"C.UTF-8", "C.utf8", "en_US.UTF-8"};
    (void)setlocale(LC_CTYPE, "");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(nl_langinfo(CODESET), "UTF-8") == 0) return;
        (void)setlocale(LC_CTYPE, others[i]);
    }
}

static omm_err from_terminal(chat *c) {
    bool quit = false;
    set_characters();
    rl_bind_key('\t', rl_insert); /* pasted text has tabs, and nothing is completed here */
    omm_err err = chat_view_say(&c->view, "a small model: check what matters; /help, /quit");
    using_history();
    while (err == OMM_OK && !quit) {
        char *line = readline("> ");
        if (!line) break;
        if (line[0]) add_history(line);
        err = take_line(&quit, c, line, strlen(line));
        free(line);
    }
    printf("\n");
    return err;
}

static omm_err run(chat *c) {
    OMM_TRY(open_all(c));
    c->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !c->options.json;
    OMM_TRY(c->terminal ? from_terminal(c) : from_pipe(c));
    if (fflush(stdout) != 0 || ferror(stdout))
        return omm_raise(OMM_ERR_IO, "cannot write the output");
    return OMM_OK;
}

int cmd_chat(int argc, char **argv) {
    chat c = {.options = {.common = {.activations = "q8", .kv_default = "f16"},
                          .sampler = omm_sampler_default(),
                          .tokens = omm_model_speaker_options_default().reply_tokens_max,
                          .calls = omm_assistant_options_default().calls_max,
                          .seed = 1},
              .clock = omm_clock_system()};
    chat_options *o = &c.options;
    const cli_option options[] = {
        LOADED_OPTIONS(o->common, " (that of the repository, from its folder)", "q8", "f16"),
        {"docs", 'd', CLI_STR, &o->docs, "DIR", "folder of text files to search"},
        {"notes", 0, CLI_STR, &o->notes, "FILE", "where notes are kept (XDG data folder)"},
        {"no-notes", 0, CLI_FLAG, &o->no_notes, NULL, "keep no notes"},
        {"system", 0, CLI_STR, &o->system, "TEXT", "system turn; the tools are added to it"},
        SAMPLING_OPTIONS(o->sampler),
        {"seed", 0, CLI_U64, &o->seed, "N", "seed of the draws (1)"},
        FORM_OPTIONS(o->form),
        LOOKUP_OPTIONS(o->decoding),
        {"count", 'n', CLI_U32, &o->tokens, "N",
         "tokens of one answer at most (160), its thought not counted"},
        NO_THINK_OPTION(o->no_think),
        {"calls", 0, CLI_U32, &o->calls, "N", "tool calls for one question at most (4)"},
        {"session", 0, CLI_STR, &o->common.session, "FILE",
         "go on with the conversation in FILE if it is there; keep it there after each answer"},
        {"stats", 0, CLI_FLAG, &o->stats, NULL, "tokens of each answer on stderr"},
        {"json", 0, CLI_FLAG, &o->json, NULL, "events as JSON, one object a line"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options, "chat [-m MODEL] [--docs DIR]",
                         "Talk with a model that can calculate, keep and find notes, and search\n"
                         "documents.  Lines come from the terminal, or from a pipe: then they are\n"
                         "shown, too.  [Brackets] are the program's own words.  /help inside.",
                         0, 0);
    if (code >= 0) return code;
    o->common.logit_rows = decoding_logit_rows(&o->decoding);
    o->common.lexicon = decoding_has_form(&o->form);
    chat_view_init(&c.view, o->json);
    c.view.stats = o->stats;
    c.view.lookup = o->decoding.lookup;
    omm_err err = run(&c);
    close_all(&c);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}
