/* grammar_format.c - what `format` names, as regular expressions (pattern.h), narrow or wide.
 *
 * Narrow, for schemas that promise: texts that every reader of the format takes, so not all that some reader does (no year 0,
 * no leap second, no address with a comment).  Wide, for tools that are not strict: no text is missing that the format's RFC
 * has or that pydantic reads as its type (a time without a zone, seconds since 1970, 32 digits of a UUID), so that they say how
 * one begins and little more. */
#include "grammar_internal.h"

#define YEAR "(?:[1-9]\\d{3}|0[1-9]\\d{2}|00[1-9]\\d|000[1-9])"
#define LEAP_YEAR "(?:\\d{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"                                  \
    "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define HOUR_MINUTE "(?:[01]\\d|2[0-3]):[0-5]\\d"
#define TIME HOUR_MINUTE ":[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-]" HOUR_MINUTE ")"
#define DAYS "\\d{1,6}D"
#define MONTHS "\\d{1,5}M(?:" DAYS ")?"
#define YEARS "\\d{1,4}Y(?:" MONTHS ")?"
/* Of what is behind T all together stays under 2^31 s: some readers have 32 bits for it. */
#define SECONDS "\\d{1,9}S"
#define MINUTES "\\d{1,7}M(?:" SECONDS ")?"
#define HOURS "\\d{1,5}H(?:" MINUTES ")?"
#define OF_DAY "T(?:" HOURS "|" MINUTES "|" SECONDS ")"
#define LETTER "[A-Za-z]"
#define ALNUM "[A-Za-z0-9]"
/* The third and fourth character are no hyphens both, which names in ASCII that stand for others begin with (xn--). */
#define LABEL_REST "(?:" ALNUM "|[A-Za-z0-9-]-?" ALNUM "(?:[A-Za-z0-9-]{0,35}" ALNUM ")?)?"
#define LABEL ALNUM LABEL_REST /* 6 and their dots stay under 253 */
/* A last one that begins with a digit is read as a part of an address. */
#define HOST "(?:(?:" LABEL "\\.){0,5}" LETTER LABEL_REST "|(?:" OCTET "\\.){3}" OCTET ")"
/* Last labels of mail: none of test, arpa; local, onion; invalid; localhost, which are nobody's. */
#define TLD_4                                                                                      \
    "[B-SU-Zb-su-z]" LETTER "{3}|[Aa](?:[A-QS-Za-qs-z]" LETTER "{2}|[Rr](?:[A-OQ-Za-oq-z]" LETTER  \
    "|[Pp][B-Zb-z]))"                                                                              \
    "|[Tt](?:[A-DF-Za-df-z]" LETTER "{2}|[Ee](?:[A-RT-Za-rt-z]" LETTER "|[Ss][A-SU-Za-su-z]))"
#define TLD_5                                                                                      \
    "[A-KMNP-Za-kmnp-z]" LETTER "{4}|[Ll](?:[A-NP-Za-np-z]" LETTER                                 \
    "{3}|[Oo](?:[ABD-Zabd-z]" LETTER "{2}|[Cc](?:[B-Zb-z]" LETTER "|[Aa][A-KM-Za-km-z])))"         \
    "|[Oo](?:[A-MO-Za-mo-z]" LETTER "{3}|[Nn](?:[A-HJ-Za-hj-z]" LETTER                             \
    "{2}|[Ii](?:[A-NP-Za-np-z]" LETTER "|[Oo][A-MO-Za-mo-z])))"
#define TLD                                                                                        \
    "(?:" LETTER "{2,3}|" TLD_4 "|" TLD_5 "|" LETTER "{6}|[A-HJ-Za-hj-z]" LETTER "{6}|" LETTER     \
    "{8}"                                                                                          \
    "|[A-KM-Za-km-z]" LETTER "{8}|" LETTER "{10,24})"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}" /* 3 and their dots stay under 64 */
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d{2}|[1-9]?\\d)"
#define HEX "[0-9a-fA-F]"
#define GROUP HEX "{1,4}"
/* So many groups, `::` for at least one, and up to so many. */
#define AROUND(left, right) "|(?:" GROUP ":){" left "}:(?:" GROUP "(?::" GROUP "){0," right "})?"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%" HEX "{2})"
#define PATH "(?:/" PCHAR "*)*"
/* Those of which a text without // is read as one with it, and file, which has no port. */
#define WEB "(?:[Hh][Tt][Tt][Pp][Ss]?|[Ww][Ss][Ss]?|[Ff][Tt][Pp])"
#define SCHEME_REST "[A-Za-z0-9+.-]"
#define OTHER                                                                                      \
    "(?:[A-EGI-VX-Za-egi-vx-z]" SCHEME_REST "{0,30}|[Ff][A-HJ-SU-Za-hj-su-z0-9+.-]" SCHEME_REST    \
    "{0,29}"                                                                                       \
    "|[Hh][A-SU-Za-su-z0-9+.-]" SCHEME_REST "{0,29}|[Ww][A-RT-Za-rt-z0-9+.-]" SCHEME_REST          \
    "{0,29})"
#define PORT "(?:6553[0-5]|655[0-2]\\d|65[0-4]\\d{2}|6[0-4]\\d{3}|[1-5]\\d{4}|[1-9]\\d{0,3})"
#define AT_HOST "//" HOST "(?::" PORT ")?" PATH
#define AT_PATH "/?" PCHAR "+" PATH
#define QUERY "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"

/* ---- wide -------------------------------------------------------------------------------------- */

/* Seconds, or milliseconds, since 1970. */
#define STAMP "[+-]?(?:\\d+\\.?\\d*|\\.\\d+)(?:[Ee][+-]?\\d+)?"
#define WIDE_TIME "\\d{2}:\\d{2}(?::\\d{2}(?:[.,]\\d+)?)?(?:[Zz]|[+\\u2212-]\\d{2}(?::?\\d{2})?)?"
#define WIDE_DATE "^(?:\\d{4}-\\d{2}-\\d{2}(?:[Tt _]" WIDE_TIME ")?|" STAMP ")$"
/* In front of an @ and of the colon of a URI a text cannot end: these numbers keep a model from going on for ever.  A local part
 * has 64 characters, and a name may stand in front of it; the longest schemes are an app's name backwards. */
#define WIDE_EMAIL "^[^@]{1,128}@[^]"
#define WIDE_URI "^" LETTER SCHEME_REST "{0,127}:"

static const struct {
    const char *name, *narrow, *wide; /* NULL: the same */
} s_formats[] = {
    {"date-time", "^" DATE "T" TIME "$", WIDE_DATE},
    {"date", "^" DATE "$", WIDE_DATE},
    {"time", "^" TIME "$", "^" WIDE_TIME "$"},
    /* RFC 3339, appendix A */
    {"duration", "^P(?:(?:" YEARS "|" MONTHS "|" DAYS ")(?:" OF_DAY ")?|" OF_DAY "|\\d{1,5}W)$",
     "^[+-]?[Pp\\d][A-Za-z\\d:., +-]*$"},
    {"email", "^" ATOM "(?:\\." ATOM "){0,2}@(?:" LABEL "\\.){1,4}" TLD "$", WIDE_EMAIL},
    {"hostname", "^" LABEL "(?:\\." LABEL "){0,5}$", "^[A-Za-z\\d_][A-Za-z\\d_.-]*$"},
    {"ipv4", "^(?:" OCTET "\\.){3}" OCTET "$", NULL},
    {"ipv6",
     "^(?:(?:" GROUP ":){7}" GROUP "|::(?:" GROUP "(?::" GROUP "){0,6})?" AROUND("1", "5")
         AROUND("2", "4") AROUND("3", "3") AROUND("4", "2") AROUND("5", "1")
             AROUND("6", "0") "|(?:" GROUP ":){7}:)$",
     "^(?:" HEX "{0,4}:){2,7}[0-9a-fA-F.:]*(?:%[^]+)?$"},
    {"uuid", "^" HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}$",
     "^(?:urn:uuid:)?\\{?" HEX "{8}-?(?:" HEX "{4}-?){3}" HEX "{12}\\}?$"},
    {"uri",
     "^(?:(?:" WEB "|" OTHER "):" AT_HOST "|" OTHER ":" AT_PATH "|[Ff][Ii][Ll][Ee]:(?://)?/" PCHAR
     "+" PATH ")" QUERY "$",
     WIDE_URI},
};

const char *grammar_format(const char *name, bool wide) {
    for (size_t i = 0; i < sizeof s_formats / sizeof s_formats[0]; i++)
        if (strcmp(s_formats[i].name, name) == 0)
            return wide && s_formats[i].wide ? s_formats[i].wide : s_formats[i].narrow;
    return NULL;
}
