/* grammar.h - which texts are the JSON that is asked for: any object, what a JSON Schema describes, or calls of tools.
 *
 *   schema --compile--> rules        text so far + rules --> bytes that may follow (constraint.h: tokens)
 *
 * Spelling.  One space may stand behind a colon and behind a comma, and in front of the text where the vocabulary has texts
 * begin with one (SentencePiece; a chat drops it); nowhere else, nor a line end: a small model that may write blanks
 * writes them for ever.  For the same reason a number has at most 18 digits before its point, 17 behind it and 2 of an
 * exponent (so a reader of 64-bit integers takes it: -0 is no integer), and where it has a range 9 behind its point and no exponent.
 * Strings are UTF-8 and JSON's escapes but \u0000; surrogates come in pairs; in those with a pattern
 * only what has to be escaped is.  Values of enum and const are spelled as omm_json_write_spaced spells them.
 *
 * Schemas.  Supported are
 *   type (a name or a list), enum, const, anyOf, oneOf (read as anyOf), allOf, $ref to a place in the schema (# and a path)
 *   object: properties, required, additionalProperties      string: minLength, maxLength (characters), pattern or format
 *   array: items, prefixItems, minItems, maxItems           numbers: minimum, maximum, exclusiveMinimum, exclusiveMaximum,
 *   multipleOf (of a whole number up to 1e15: its multiples are spelled as integers)
 *   pattern: regular expressions of ECMA-262 as pattern.h has them, found anywhere; format: date-time, date, time, duration, email,
 *            hostname, ipv4, ipv6, uuid, uri (grammar_format.c)
 *   title, description, default, examples and the like, and $id of the root: without meaning
 * and anything else is refused with its path: what is left out in silence would be promised and not kept.  $ref and the
 * keywords from enum to allOf stand alone, but enum and const beside type, and anything beside allOf: what the schemas of its list and
 * that say becomes one schema, keyword by keyword, where of two of a kind one follows from both (grammar_all_of.c); else it is refused.
 * Where `type` is missing the keywords that are there say it; where there are none, any value may stand.
 *
 * Members come in the order of `properties`, those that are not required may be left out, then others where
 * additionalProperties allows them (absent: any value, as the standard has it).  Their names are spelled without \u and \/,
 * so that none is one of `properties` in other letters; nothing keeps two of them from being equal.
 *
 * Alternatives that have begun alike are followed side by side, at most 32 of them (those inside one another multiply): of more,
 * those that stand first, but of tools that are not strict all, each as any value from where they were too many.
 * Values of enum and const are one alternative, however many they are, and so are schemas of nothing else in anyOf and oneOf.
 * Values nest up to 64 deep; none is begun that has no room to be ended.
 *
 * Depends on: err, json, chat, thinking.  Threads: a grammar is read-only once it is open and may be shared.
 */
#ifndef OMM_GRAMMAR_H
#define OMM_GRAMMAR_H

#include "omm/chat.h"
#include "omm/err.h"
#include "omm/json.h"
#include "omm/thinking.h"

#define OMM_GRAMMAR_RULES_MAX 8192u      /* about one for each schema inside a schema */
#define OMM_GRAMMAR_PARTS_MAX 16384u     /* members, alternatives, values of enum: of each kind */
#define OMM_GRAMMAR_BYTES_MAX (1u << 20) /* names and values, spelled */
#define OMM_GRAMMAR_SCHEMA_DEPTH_MAX 64u /* schemas inside schemas; $ref begins again */

typedef struct omm_grammar omm_grammar;

/* Any JSON object.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_grammar_open_object(omm_grammar **out);
/* The schema is only read.  Errors: FORMAT (no schema), UNSUPPORTED (a keyword or its value, the list of what is supported;
 * or no text that ends fulfils it), TOO_BIG (a limit), NOMEM; all but the last with the path. */
OMM_CHECKED omm_err omm_grammar_open_schema(omm_grammar **out, json_t *schema);

/* ---- texts with calls of tools (chat.h) --------------------------------------------------------
 *
 *   any text, then up to calls_max times  <tool_call> {"name": NAME, "arguments": ARGUMENTS} </tool_call>
 *   or (bare)  {"name": NAME, "parameters": ARGUMENTS}  and nothing else but white space in front
 *   or, in the other forms, what chat.h shows of them: a list of up to calls_max, or so many with names in front
 *
 * Whoever begins a call has to end it: with the name of a tool, and with arguments as its parameters describe them.  Behind
 * one follows nothing but the next one, or the end.  One space or line end may stand on either side of what stands between
 * the marks, and in front of the next call.  A mark inside a thought (thinking.h) begins none.  A bare call has begun
 * with the quote behind the name of a tool: before it the text is free, and so is one of another name.
 *
 * With `content` a text is calls alone, or one value of that schema alone, as omm_grammar_open_schema has it: what it begins with
 * says which, and a value that begins as a bare call does is that call.
 */

typedef struct omm_grammar_tool {
    const char *name;   /* as chat.h has names */
    json_t *parameters; /* the schema of an object; only read; NULL: any object */
    bool strict;        /* what is not supported is refused, else left out */
} omm_grammar_tool;

#define OMM_GRAMMAR_TOOLS_MAX 128u

typedef struct omm_grammar_calls {
    const omm_grammar_tool *tools;
    size_t tool_count;     /* 1 .. OMM_GRAMMAR_TOOLS_MAX */
    uint32_t calls_max;    /* 1 .. OMM_CHAT_CALLS_MAX */
    omm_calls_form form;   /* other than MARKED: these, too */
    omm_thinking thinking; /* of the texts; none of a BARE form */
    omm_bytes
        begun; /* what each begins with and nobody draws: a call that is asked for; or nothing */
    const char *const
        *stops; /* (stop_count) texts that end one, omm_chat_stops; live as long as the grammar */
    size_t stop_count;
    json_t *content; /* the schema of a text without calls; only read; NULL: any text */
} omm_grammar_calls;

/* Objects of parameters that name properties have no others, unless additionalProperties says so: what a tool takes it names.
 * Of a tool that is not strict, keywords that are not supported mean nothing, but what they name may stand (grammar_lenient.c),
 * members that are required and have one value come first, and formats are wide (grammar_format.c);
 * where nothing is left any value may stand, and where no grammar is made of all of it the arguments are any object.
 * `content` goes with no `begun`, and with no thinking.
 * Errors: as open_schema, with the name of a tool that is strict; UNSUPPORTED (no text begins with `begun`). */
OMM_CHECKED omm_err omm_grammar_open_calls(omm_grammar **out, const omm_grammar_calls *calls);

/* Of a grammar of calls: is this the name of one of its tools, or (not whole) does one begin so?  omm_chat_named. */
bool omm_grammar_has_tool(const void *grammar, omm_bytes name, bool whole);

void omm_grammar_close(omm_grammar *grammar); /* NULL is fine */

#endif
