/* pins.h - whose bundle it has to be (--trust, --coordinator), and whether it is what was signed: for verify, gate and compare. */
#ifndef CLI_PINS_H
#define CLI_PINS_H

#include "omm/verify.h"

typedef struct cli_pins {
    const char *trust, *coordinator; /* as given; NULL: whoever */
    omm_public_key key, coordinator_key;
} cli_pins;

/* clang-format off */
/* Rows of a table of options. */
#define CLI_PINS_OPTIONS(pins)                                                                     \
    {"trust", 0, CLI_STR, &(pins).trust, "KEY", "minisign public key, or a file that holds it"},  \
    {"coordinator", 0, CLI_STR, &(pins).coordinator, "HEX",                                        \
     "public key of the coordinator that must have run it"}
/* clang-format on */

/* Is `dir` a bundle, sealed or not?  Of one that was never sealed a line on stderr says so.  Errors: USAGE (it is none),
 * NOT_FOUND, TOO_BIG. */
OMM_CHECKED omm_err cli_pins_check_bundle(const char *dir);
/* Verify a bundle.  Errors: USAGE (it is none, or a pin is no key), those of omm_bundle_verify and of reading a file.  *report: fini
 * after OK. */
OMM_CHECKED omm_err cli_pins_verify(omm_verify_report *report, const char *dir, cli_pins *pins);
/* On stderr: `dir` is not what was signed. */
void cli_pins_say_refused(const char *dir, const char *command);
/* On stderr, where nobody is trusted: anybody may have sealed it. */
void cli_pins_hint(const cli_pins *pins, const char *command);

#endif
