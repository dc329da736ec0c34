/* grammar_format.c - what `format` names, as regular expressions (pattern.h): texts that every reader of the format takes, so
 * not all that some reader does (no year 0, no leap second, no address with a comment). */
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
#define SECONDS "\\d{1,9}S"
#define MINUTES "\\d{1,9}M(?:" SECONDS ")?"
#define HOURS "\\d{1,7}H(?:" MINUTES ")?"
#define OF_DAY "T(?:" HOURS "|" MINUTES "|" SECONDS ")"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,38}[A-Za-z0-9])?" /* 6 and their dots stay under 253 */
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"           /* 3 and their dots stay under 64 */
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d{2}|[1-9]?\\d)"
#define HEX "[0-9a-fA-F]"
#define GROUP HEX "{1,4}"
/* So many groups, `::` for at least one, and up to so many. */
#define AROUND(left, right) "|(?:" GROUP ":){" left "}:(?:" GROUP "(?::" GROUP "){0," right "})?"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%" HEX "{2})"
#define PATH "(?:/" PCHAR "*)*"

static const struct {
    const char *name, *expression;
} s_formats[] = {
    {"date-time", "^" DATE "T" TIME "$"},
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    /* RFC 3339, appendix A */
    {"duration", "^P(?:(?:" YEARS "|" MONTHS "|" DAYS ")(?:" OF_DAY ")?|" OF_DAY "|\\d{1,5}W)$"},
    {"email", "^" ATOM "(?:\\." ATOM "){0,2}@(?:" LABEL "\\.){1,4}[A-Za-z]{2,24}$"},
    {"hostname", "^" LABEL "(?:\\." LABEL "){0,5}$"},
    {"ipv4", "^(?:" OCTET "\\.){3}" OCTET "$"},
    {"ipv6", "^(?:(?:" GROUP ":){7}" GROUP "|::(?:" GROUP "(?::" GROUP "){0,6})?" AROUND("1", "5")
                 AROUND("2", "4") AROUND("3", "3") AROUND("4", "2") AROUND("5", "1")
                     AROUND("6", "0") "|(?:" GROUP ":){7}:)$"},
    {"uuid", "^" HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}$"},
    {"uri",
     "^[A-Za-z][A-Za-z0-9+.-]{0,30}:(?://" LABEL "(?:\\." LABEL "){0,5}(?::[1-9]\\d{0,3})?" PATH
     "|/?" PCHAR "+" PATH ")(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?$"},
};

const char *grammar_format(const char *name) {
    for (size_t i = 0; i < sizeof s_formats / sizeof s_formats[0]; i++)
        if (strcmp(s_formats[i].name, name) == 0) return s_formats[i].expression;
    return NULL;
}
