/* Verdicts as canonical JSON and as JUnit XML. */
#include "internal.h"

#include "omm/json.h"
#include "omm/utf8.h"

#include <inttypes.h>
#include <string.h>

/* NULL strings become JSON null. */
static omm_err set_text(json_t *object, const char *key, const char *text) {
    return omm_json_set(object, key, text ? json_string(text) : json_null());
}

static omm_err set_value(json_t *object, const omm_verdict *v) {
    if (!v->has_value) return omm_json_set(object, "value", json_null());
    return omm_json_set_real(object, "value", v->value);
}

static omm_err set_evidence(json_t *object, const omm_verdict *v) {
    OMM_TRY(set_text(object, "evidence", v->evidence_path[0] ? v->evidence_path : NULL));
    if (!v->evidence_path[0]) return omm_json_set(object, "evidence_digest", json_null());
    return omm_json_set_digest(object, "evidence_digest", v->evidence_digest.b);
}

static omm_err verdict_json(json_t *object, const omm_verdict *v) {
    int64_t samples = v->samples > INT64_MAX ? INT64_MAX : (int64_t)v->samples;
    OMM_TRY(set_text(object, "commit", v->commit));
    OMM_TRY(set_text(object, "direction", omm_direction_name(v->direction)));
    OMM_TRY(set_evidence(object, v));
    OMM_TRY(set_text(object, "gate", v->family));
    OMM_TRY(set_text(object, "metric", v->metric));
    OMM_TRY(set_text(object, "reason", v->reason));
    OMM_TRY(omm_json_set_bool(object, "required", v->required));
    OMM_TRY(set_text(object, "run_id", v->run_id));
    OMM_TRY(omm_json_set_int(object, "samples", samples));
    OMM_TRY(set_text(object, "status", v->passed ? "pass" : "fail"));
    OMM_TRY(omm_json_set_real(object, "threshold", v->threshold));
    OMM_TRY(set_text(object, "unit", v->unit));
    return set_value(object, v);
}

static omm_err fill_json(json_t *root, const omm_verdicts *verdicts,
                         const omm_gate_context *context) {
    OMM_TRY(set_text(root, "kind", "omm-verdicts"));
    OMM_TRY(omm_json_set_int(root, "schema_version", 1));
    OMM_TRY(set_text(root, "run_id", context->run_id));
    OMM_TRY(omm_json_set_bool(root, "passed", omm_verdicts_passed(verdicts)));
    json_t *list = json_array();
    OMM_TRY(omm_json_set(root, "verdicts", list));
    for (size_t i = 0; i < verdicts->count; i++) {
        json_t *object = json_object();
        if (json_array_append_new(list, object) != 0)
            return omm_raise(OMM_ERR_NOMEM, "list of verdicts");
        OMM_TRY(verdict_json(object, &verdicts->items[i]));
    }
    return OMM_OK;
}

omm_err omm_verdicts_json(omm_buf *out, const omm_verdicts *verdicts,
                          const omm_gate_context *context) {
    json_t *root = json_object();
    omm_err err = fill_json(root, verdicts, context);
    if (err == OMM_OK) err = omm_json_write(out, root);
    json_decref(root);
    return err;
}

/* Text of an XML attribute.  Verdict strings are printable ASCII already. */
static omm_err put_escaped(omm_buf *out, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '&': OMM_TRY(omm_buf_append(out, "&amp;", 5)); break;
        case '<': OMM_TRY(omm_buf_append(out, "&lt;", 4)); break;
        case '>': OMM_TRY(omm_buf_append(out, "&gt;", 4)); break;
        case '"': OMM_TRY(omm_buf_append(out, "&quot;", 6)); break;
        case '\'': OMM_TRY(omm_buf_append(out, "&apos;", 6)); break;
        default: OMM_TRY(omm_buf_append(out, text, 1)); break;
        }
    }
    return OMM_OK;
}

static omm_err junit_case(omm_buf *out, const omm_verdict *v) {
    OMM_TRY(omm_buf_printf(out, "    <testcase classname=\"gates.%s\" name=\"%s\" time=\"0\"",
                           v->family, v->metric));
    if (v->passed) return omm_buf_printf(out, "/>\n");
    const char *tag = v->required ? "failure" : "skipped";
    OMM_TRY(omm_buf_printf(out, ">\n      <%s message=\"", tag));
    OMM_TRY(put_escaped(out, v->reason));
    OMM_TRY(omm_buf_printf(out, "\"/>\n    </testcase>\n"));
    return OMM_OK;
}

typedef struct tally {
    unsigned tests, failures, skipped;
} tally;

/* Of one family, or of all when `family` is NULL. */
static tally count_cases(const omm_verdicts *const *sets, size_t set_count, const char *family) {
    tally t = {0};
    for (size_t s = 0; s < set_count; s++)
        for (size_t i = 0; i < sets[s]->count; i++) {
            const omm_verdict *v = &sets[s]->items[i];
            if (family && strcmp(v->family, family) != 0) continue;
            t.tests++;
            t.failures += !v->passed && v->required;
            t.skipped += !v->passed && !v->required;
        }
    return t;
}

/* What is written: the verdicts, and what they are of. */
typedef struct report {
    const omm_verdicts *const *sets;
    size_t set_count;
    const omm_junit_property *properties;
    size_t property_count;
} report;

/* Is this whole character one of an attribute in XML?  No control (C0, DEL, C1), not U+FFFE, not U+FFFF. */
static bool is_xml(const uint8_t *c, size_t size) {
    if (size == 1) return c[0] >= 0x20 && c[0] != 0x7f;
    if (size == 2) return c[0] != 0xc2 || c[1] >= 0xa0;
    return size == 4 || (size == 3 && !(c[0] == 0xef && c[1] == 0xbf && c[2] >= 0xbe));
}

static omm_err put_any(omm_buf *out, const char *text) {
    const omm_bytes all = omm_bytes_str(text);
    for (size_t at = 0; at < all.size;) {
        char one[8] = "?";
        const size_t size = omm_utf8_size(all.data + at, all.size - at);
        if (is_xml(all.data + at, size)) {
            memcpy(one, all.data + at, size);
            one[size] = '\0';
        }
        OMM_TRY(put_escaped(out, one));
        at += size > 0 ? size : 1;
    }
    return OMM_OK;
}

static omm_err junit_properties(omm_buf *out, const report *r) {
    if (r->property_count == 0) return OMM_OK;
    OMM_TRY(omm_buf_printf(out, "    <properties>\n"));
    for (size_t i = 0; i < r->property_count; i++) {
        OMM_TRY(omm_buf_printf(out, "      <property name=\"%s\" value=\"", r->properties[i].name));
        OMM_TRY(put_any(out, r->properties[i].value));
        OMM_TRY(omm_buf_printf(out, "\"/>\n"));
    }
    return omm_buf_printf(out, "    </properties>\n");
}

static omm_err junit_suite(omm_buf *out, const report *r, const char *family) {
    tally t = count_cases(r->sets, r->set_count, family);
    if (t.tests == 0) return OMM_OK;
    OMM_TRY(omm_buf_printf(
        out, "  <testsuite name=\"%s\" tests=\"%u\" failures=\"%u\" skipped=\"%u\">\n", family,
        t.tests, t.failures, t.skipped));
    OMM_TRY(junit_properties(out, r));
    for (size_t s = 0; s < r->set_count; s++)
        for (size_t i = 0; i < r->sets[s]->count; i++)
            if (strcmp(r->sets[s]->items[i].family, family) == 0)
                OMM_TRY(junit_case(out, &r->sets[s]->items[i]));
    return omm_buf_printf(out, "  </testsuite>\n");
}

static omm_err junit(omm_buf *out, const report *r) {
    static const char *const families[] = {"communication", "fairness", "quality",
                                           "reproducibility", "integrity"};
    tally t = count_cases(r->sets, r->set_count, NULL);
    OMM_TRY(omm_buf_printf(out,
                           "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                           "<testsuites name=\"gates\" tests=\"%u\" failures=\"%u\" "
                           "skipped=\"%u\">\n",
                           t.tests, t.failures, t.skipped));
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++)
        OMM_TRY(junit_suite(out, r, families[f]));
    return omm_buf_printf(out, "</testsuites>\n");
}

omm_err omm_verdicts_junit(omm_buf *out, const omm_verdicts *const *sets, size_t set_count) {
    return omm_verdicts_junit_of(out, sets, set_count, NULL, 0);
}

omm_err omm_verdicts_junit_of(omm_buf *out, const omm_verdicts *const *sets, size_t set_count,
                              const omm_junit_property *properties, size_t property_count) {
    size_t before = out->size;
    const report r = {sets, set_count, properties, property_count};
    omm_err err = junit(out, &r);
    if (err != OMM_OK) out->size = before;
    return err;
}
