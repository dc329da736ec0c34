/* grammar.h - which texts are the JSON that is asked for: any object, or what a JSON Schema describes.
 *
 *   schema --compile--> rules        text so far + rules --> bytes that may follow (constraint.h: tokens)
 *
 * Spelling.  One space may stand behind a colon and behind a comma, and in front of the text where the vocabulary has texts
 * begin with one (SentencePiece; a chat drops it); nowhere else, nor a line end: a small model that may write blanks
 * writes them for ever.  For the same reason a number has at most 18 digits before
 * its point, 17 behind it and 2 of an exponent (so a reader of 64-bit integers takes it).  Strings are UTF-8 and JSON's
 * escapes but \u0000; surrogates come in pairs.  Values of enum and const are spelled as omm_json_write_spaced spells them.
 *
 * Schemas.  Supported are
 *   type (a name or a list), enum, const, anyOf, oneOf (read as anyOf), allOf of one, $ref to #, #/$defs/N, #/definitions/N
 *   object: properties, required, additionalProperties      string: minLength, maxLength (characters)
 *   array: items, prefixItems, minItems, maxItems           integer: minimum, maximum, exclusiveMinimum, exclusiveMaximum
 *   title, description, default, examples and the like: without meaning
 * and anything else is refused with its path: what is left out in silence would be promised and not kept.  $ref and the
 * keywords from enum to allOf stand alone, but enum and const beside type.  Where `type` is missing the keywords that are
 * there say it; where there are none, any value may stand.
 *
 * Members come in the order of `properties`, those that are not required may be left out, then others where
 * additionalProperties allows them (absent: any value, as the standard has it).  Their names are spelled without \u and \/,
 * so that none is one of `properties` in other letters; nothing keeps two of them from being equal.
 *
 * Alternatives that have begun alike are followed side by side, at most 32 of them: of more, those that stand first.
 * Values nest up to 64 deep; none is begun that has no room to be ended.
 *
 * Depends on: err, json.  Threads: a grammar is read-only once it is open and may be shared.
 */
#ifndef OMM_GRAMMAR_H
#define OMM_GRAMMAR_H

#include "omm/err.h"
#include "omm/json.h"

#define OMM_GRAMMAR_RULES_MAX 4096u      /* about one for each schema inside a schema */
#define OMM_GRAMMAR_PARTS_MAX 16384u     /* members, alternatives, values of enum: of each kind */
#define OMM_GRAMMAR_BYTES_MAX (1u << 20) /* names and values, spelled */
#define OMM_GRAMMAR_SCHEMA_DEPTH_MAX 64u /* schemas inside schemas; $ref begins again */

typedef struct omm_grammar omm_grammar;

/* Any JSON object.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_grammar_open_object(omm_grammar **out);
/* The schema is only read.  Errors: FORMAT (no schema), UNSUPPORTED (a keyword or its value, the list of what is supported;
 * or no text that ends fulfils it), TOO_BIG (a limit), NOMEM; all but the last with the path. */
OMM_CHECKED omm_err omm_grammar_open_schema(omm_grammar **out, json_t *schema);
void omm_grammar_close(omm_grammar *grammar); /* NULL is fine */

#endif
