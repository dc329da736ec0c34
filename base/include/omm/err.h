/* err.h - the one error type of OpenMeshMind, and the three kinds of failure.
 *
 *   bug in our code        OMM_ASSERT            prints and aborts; never for remote input
 *   expected failure       omm_err return value  disk full, peer gone, out of memory
 *   refused remote input   omm_err return value  OMM_ERR_REFUSED_*: log with the peer's id
 *
 * Depends on: libc only.  Threads: the detail text is kept per thread.
 */
#ifndef OMM_ERR_H
#define OMM_ERR_H

/* Append only: the numbers are written to logs and to the wire (receipts carry the name). */
#define OMM_ERR_MAP(XX)                                                                            \
    XX(NOMEM, "out of memory")                                                                     \
    XX(IO, "input or output failed")                                                               \
    XX(SIZE, "size does not match what the header says")                                           \
    XX(TOO_BIG, "over a fixed limit")                                                              \
    XX(VERSION, "unsupported format version")                                                      \
    XX(REFUSED_SHAPE, "refused: adapter shape does not match the round")                           \
    XX(REFUSED_VALUE, "refused: not a finite number or out of range")                              \
    XX(USAGE, "wrong use of a command")                                                            \
    XX(CONFIG, "configuration is not valid")                                                       \
    XX(NOT_FOUND, "not found")                                                                     \
    XX(EXISTS, "exists already")                                                                   \
    XX(FORMAT, "malformed data")                                                                   \
    XX(UNSUPPORTED, "valid, but not supported here")                                               \
    XX(DIGEST, "digest does not match")                                                            \
    XX(SIGNATURE, "signature does not verify")                                                     \
    XX(STATE, "not possible in this state")                                                        \
    XX(TIMEOUT, "time ran out")                                                                    \
    XX(CLOSED, "connection or file was closed")                                                    \
    XX(CANCELLED, "stopped on request")                                                            \
    XX(NUMERIC, "a computation gave NaN or infinity")                                              \
    XX(MISMATCH, "two things that must be equal differ")                                           \
    XX(REFUSED_SIGNATURE, "refused: signature missing or wrong")                                   \
    XX(REFUSED_CONTEXT, "refused: signed for another purpose")                                     \
    XX(REFUSED_KEY, "refused: key is not enrolled")                                                \
    XX(REFUSED_ROUND, "refused: another round or nonce")                                           \
    XX(REFUSED_LATE, "refused: after the deadline")                                                \
    XX(REFUSED_DUPLICATE, "refused: this node has submitted already")                              \
    XX(REFUSED_BASE, "refused: another base model, tokenizer or global adapter")                   \
    XX(REFUSED_RECIPE, "refused: recipe not accepted")                                             \
    XX(REFUSED_DIGEST, "refused: bytes do not match the announced digest")                         \
    XX(REFUSED_SIZE, "refused: over a size limit")                                                 \
    XX(REFUSED_FORMAT, "refused: malformed message or payload")                                    \
    XX(REFUSED_NORM, "refused: norm over the bound")                                               \
    XX(REFUSED_BUDGET, "refused: over the byte budget")                                            \
    XX(REFUSED_NOT_SELECTED, "refused: node was not selected for this round")                      \
    XX(REFUSED_RANGE, "refused: a value is over the range of the round")                           \
    XX(REFUSED_RESIDUAL, "refused: residual does not follow the last accepted one")                \
    XX(REFUSED_INVITATION, "refused: invitation unknown, used, withdrawn or expired")              \
    XX(REFUSED_FULL, "refused: no place is left")                                                  \
    XX(REFUSED_WORK, "refused: proof of work missing, too little or too old")

typedef enum omm_err {
    OMM_OK = 0,
#define XX(name, text) OMM_ERR_##name,
    OMM_ERR_MAP(XX)
#undef XX
} omm_err;

#define OMM_CHECKED __attribute__((warn_unused_result))

/* Stable name ("NOMEM") and text of a code.  Never NULL. */
const char *omm_err_name(omm_err err);
const char *omm_err_text(omm_err err);

/* What the last omm_raise() on this thread said: "file:line: NAME: sentence".
 * Borrowed; valid until the next raise on this thread. */
const char *omm_err_detail(void);

/* The sentence alone, for a user or a peer (no source place).  Borrowed, same lifetime. */
const char *omm_err_sentence(void);

/* On in every build.  One condition each: OMM_ASSERT(a); OMM_ASSERT(b). */
#define OMM_ASSERT(cond) ((cond) ? (void)0 : omm_assert_failed(#cond, __FILE__, __LINE__))
_Noreturn void omm_assert_failed(const char *cond, const char *file, int line);

/* Record a detail and return `err`, so a caller writes: return omm_raise(OMM_ERR_IO, ...).
 * The arguments may be omm_err_sentence() itself, to add to it.  The sentence is one line: control
 * characters in it (a peer's text, a file name) become '?'; over about 2 kB it is cut. */
#define omm_raise(err, ...) omm_raised(omm_raise_at((err), __FILE__, __LINE__, __VA_ARGS__))
omm_err omm_raise_at(omm_err err, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Says to compilers and analysers that a raise never gives OMM_OK. */
static inline omm_err omm_raised(omm_err err) {
    OMM_ASSERT(err != OMM_OK);
    return err;
}

/* `err`, whose sentence then begins with what it is about: a path, a key of a file.  OMM_OK stays. */
#define omm_err_about(err, what) omm_err_about_at((err), __FILE__, __LINE__, (what))
OMM_CHECKED omm_err omm_err_about_at(omm_err err, const char *file, int line, const char *what);

/* Return early when `expr` fails; the detail of the first raise is kept. */
#define OMM_TRY(expr)                                                                              \
    do {                                                                                           \
        omm_err omm_try_err_ = (expr);                                                             \
        if (omm_try_err_ != OMM_OK) return omm_try_err_;                                           \
    } while (0)

/* The same for functions with one `out:` label and a local `omm_err err`. */
#define OMM_TRY_OUT(expr)                                                                          \
    do {                                                                                           \
        err = (expr);                                                                              \
        if (err != OMM_OK) goto out;                                                               \
    } while (0)

#endif
