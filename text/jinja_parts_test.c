/* jinja_parts_test.c - templates taken apart as Jinja reads them; and those that are not. */
#include "jinja_shape.h"

#include "omm/mem.h"
#include "omm_test.h"

/* Parts as T(...), O(...) and B(...); "" where there are none. */
static void write_parts(omm_buf *out, const char *jinja, size_t size, bool all) {
    jinja_parts p;
    const omm_bytes text = omm_bytes_of(jinja, size);
    CHECK_OK(all ? jinja_parts_read_all(&p, text) : jinja_parts_read(&p, text));
    for (size_t i = 0; i < p.count; i++) {
        const omm_bytes part = jinja_text(&p, i);
        CHECK_OK(omm_buf_printf(out, "%c(", "TOB"[p.list[i].kind]));
        CHECK_OK(omm_buf_append(out, part.data, part.size));
        CHECK_OK(omm_buf_append(out, ")", 1));
    }
    CHECK(!jinja_is(&p, p.count, JINJA_TEXT));
    CHECK_EQ(jinja_text(&p, p.count).size, 0);
    jinja_parts_fini(&p);
}

static void reads_so(const char *jinja, const char *parts, bool all) {
    omm_buf out;
    omm_buf_init(&out, JINJA_BYTES_MAX);
    write_parts(&out, jinja, strlen(jinja), all);
    if (!omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(parts))) {
        fprintf(stderr, "%s\n  gives  %.*s\n", jinja, (int)out.size, (const char *)out.data);
        check_failed(parts, __FILE__, __LINE__);
    }
    omm_buf_fini(&out);
}

static void reads(const char *jinja, const char *parts) {
    reads_so(jinja, parts, false);
}

static void reads_all(const char *jinja, const char *parts) {
    reads_so(jinja, parts, true);
}

static void test_space(void) {
    reads("", "");
    reads("\n", "");
    reads("a\n\n", "T(a\n)");
    reads("a {{ x }} b", "T(a )O(x)T( b)");
    reads("a \n {{- x -}} \n b", "T(a)O(x)T(b)");
    reads("a\n  {% if x %}\n  b\n  {% endif %}\nc", "T(a\n)B(if x)T(  b\n)B(endif)T(c)");
    reads("  {% if x %}  \nb", "B(if x)T(  \nb)"); /* a line end alone goes */
    reads("a  {% if x %}b", "T(a  )B(if x)T(b)");
    reads("\n {%+ if x +%}\nb", "T(\n )B(if x)T(\nb)");
    reads("a \n {%- if x -%} \n b", "T(a)B(if x)T(b)");
    reads("{{ x }}  {% if y %}", "O(x)T(  )B(if y)");
    reads("{% if x %}  {% if y %}", "B(if x)T(  )B(if y)");
    reads("{% if x %}\n  {% if y %}\n\n", "B(if x)B(if y)"); /* and the last of the file */
    reads("a\n  {{ x }}", "T(a\n  )O(x)");
    reads("a\n  {{+ x }}", "T(a\n  )O(x)");
    reads("a\v\f\r\n\rb{{- x }}", "T(a\v\f\n\nb)O(x)");
    reads("\r\n  {% if x %}\r\n{% endif %}", "T(\n)B(if x)B(endif)");
}

/* White space is Python's, so Unicode's. */
static void test_wide_space(void) {
    reads("a\xc2\xa0{{- x }}", "T(a)O(x)");
    reads("{{ x -}}\xe3\x80\x80 b", "O(x)T(b)");
    reads("{% if x -%}\x1c b", "B(if x)T(b)");
    reads("{% if x -%}\xe2\x80\xa8", "B(if x)");
    reads("\n\xc2\xa0 {% if x %}", "T(\n)B(if x)");
    reads("\xc2\xa0{% if x %}", "B(if x)");
    reads("{{ x }}\xc2\xa0{% if x %}", "O(x)T(\xc2\xa0)B(if x)");
    reads("a\xe2\x80\xa8{% if x %}", "T(a\xe2\x80\xa8)B(if x)"); /* that ends no line here */
    reads("{% if x %}\n\xc2\xa0{% if x %}", "B(if x)B(if x)");
    reads("\xc2\xa0{{ x }}\xc2\xa0", "T(\xc2\xa0)O(x)T(\xc2\xa0)");
    reads("{{ x -}} \xc3\xa9\xe2\x80\x8b {{- x }}", "O(x)T(\xc3\xa9\xe2\x80\x8b)O(x)");
    static const char *const all[] = {" ",
                                      "\t",
                                      "\n",
                                      "\v",
                                      "\f",
                                      "\x1c",
                                      "\x1d",
                                      "\x1e",
                                      "\x1f",
                                      "\xc2\x85",
                                      "\xc2\xa0",
                                      "\xe1\x9a\x80",
                                      "\xe2\x80\x80",
                                      "\xe2\x80\x81",
                                      "\xe2\x80\x82",
                                      "\xe2\x80\x83",
                                      "\xe2\x80\x84",
                                      "\xe2\x80\x85",
                                      "\xe2\x80\x86",
                                      "\xe2\x80\x87",
                                      "\xe2\x80\x88",
                                      "\xe2\x80\x89",
                                      "\xe2\x80\x8a",
                                      "\xe2\x80\xa8",
                                      "\xe2\x80\xa9",
                                      "\xe2\x80\xaf",
                                      "\xe2\x81\x9f",
                                      "\xe3\x80\x80"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[64];
        snprintf(text, sizeof text, "a%s{{- x -}}%sb", all[i], all[i]);
        reads(text, "T(a)O(x)T(b)");
    }
    reads("\xa0{{- x -}}\x85", "T(\xa0)O(x)T(\x85)"); /* bytes that are no character */
}

static void test_comments(void) {
    reads("a {# it's -#} b {#- {{ 'x' }} #}\n c", "T(a b c)");
    reads("a\n  {# \" #}\n  b", "T(a\n  b)");
    reads("a\n  {#+ c +#}\n  b", "T(a\n  \n  b)");
    reads("{##}a{#-#} b{#--#} c", "T(a bc)");
    reads("{{ '{# no #}' }}", "T({# no #})");
    reads("a {# b", "");
}

static void test_outputs(void) {
    reads("{{ 'a' + \"b\" ~ 'c' }}{{ 'd' }}e", "T(abcde)");
    reads("{{'a'+x~'b'}}", "T(a)O(x)T(b)");
    reads("{{ '\\n\\r\\t\\\\\\'\\\"' }}{{ \"'\" }}", "T(\n\r\t\\'\"')");
    reads("{{ 'two\nlines }} %}' }}", "T(two\nlines }} %})");
    reads("{{ '' }}a{{ '' + '' }}b", "T(ab)");
    reads("{{ x + ('a' + ['b', {'c': 'd}}'}]) + 'e' }}", "O(x)O(('a'+['b',{'c':'d}}'}]))T(e)");
    reads("{{ {'a': {'b': 1}} }}", "O({'a':{'b':1}})");
    reads("{{ (x) ~ ')' ~ y[z ~ ']'] }}", "O((x))T())O(y[z~']'])");
    /* one literal, and not all of the operand */
    reads("{{ 'a' | upper }}", "O('a'|upper)");
    reads("{{ 'a' | upper + 'b' }}", "O('a'|upper)T(b)");
    reads("{{ 'a %s' % x }}", "O('a %s'%x)");
    reads("{{ 'a'.replace('a', 'b') + 'c' }}", "O('a'.replace('a','b'))T(c)");
    reads("{{ 'abc'[1] }}{{ 'a' 'b' }}{{ 'a' * 3 }}", "O('abc'[1])O('a''b')O('a'*3)");
    reads("{{-'a' }}{{ -'a' }}{{ x - 'a' }}",
          "T(a)O(-'a')O(x-'a')"); /* the first sign is the tag's */
    /* a condition or a list around it */
    reads("{{ 'a' if x else 'b' }}", "O('a'if x else'b')");
    reads("{{ 'a' + 'b' if x else '' }}", "O('a'+'b'if x else'')");
    reads("{{ 'a' ~ 1if x }}{{ 'a' ~ 12 }}", "O('a'~1if x)T(a)O(12)");
    reads("{{ 'a' and 'b' }}{{ 'a' or 'b' }}{{ not 'a' }}", "O('a'and'b')O('a'or'b')O(not'a')");
    reads("{{ not 'a' + 'b' }}", "O(not'a'+'b')");
    reads("{{ 'a' in 'b' }}{{ 'a' is string }}", "O('a'in'b')O('a'is string)");
    reads("{{ 'a' + 'b' < 'c' }}{{ 'a' + 'b' > 'c' }}", "O('a'+'b'<'c')O('a'+'b'>'c')");
    reads("{{ 'a' + 'b' == 'c' }}{{ 'a' + 'b' != 'c' }}", "O('a'+'b'=='c')O('a'+'b'!='c')");
    reads("{{ 'a' + 'b', 'c' }}{{ x if (y) }}", "O('a'+'b','c')O(x if(y))");
    reads("{{ 'a' + b if c }}{{ 'a' + b and c }}{{ 'a' + b or c }}",
          "O('a'+b if c)O('a'+b and c)O('a'+b or c)");
    reads("{{ 'a' + b in c }}{{ 'a' + b is c }}{{ 'a' + b != c }}",
          "O('a'+b in c)O('a'+b is c)O('a'+b!=c)");
    reads("{{ 'a' ~ iffy ~ elsewhere ~ 'b' }}", "T(a)O(iffy)O(elsewhere)T(b)");
    reads("{{ }}{{ 'a' + }}{{ + 'a' }}{{ 'a' + + 'b' }}", "O()O('a'+)O(+'a')O('a'++'b')");
    reads("{{ 'a' +\xc2\xa0 'b' }}", "O('a'+\xc2\xa0'b')");
    /* escapes that are not decoded */
    reads("{{ 'it\\u2019s' }}{{ 'caf\\xe9' }}{{ '\\101' }}",
          "O('it\\u2019s')O('caf\\xe9')O('\\101')");
    reads("{{ '\\q' + 'a\\\nb' + 'c' }}", "O('\\q')O('a\\\nb')T(c)");
    reads("{{ 'caf\xc3\xa9' }}\xc3\xa9", "T(caf\xc3\xa9\xc3\xa9)");
}

static void test_spelling(void) {
    reads("{{  messages[0]['role']  ==\t\"system\" }}", "O(messages[0].role=='system')");
    reads("{{ a [ \"b\" ] ['c'] . d(e)['f'] }}", "O(a.b.c.d(e).f)");
    reads("{{ a['0b'] }}{{ a['b c'] }}{{ a[''] }}", "O(a['0b'])O(a['b c'])O(a[''])");
    reads("{{ ['b'] }}{{ f(['b']) }}{{ a[b['c']] }}", "O(['b'])O(f(['b']))O(a[b.c])");
    reads("{{ a[\"it's\"] }}{{ a[\"b\\\"\"] }}", "O(a[\"it's\"])O(a[\"b\\\"\"])");
    reads("{{ a['b'][\"['c\"] }}", "O(a.b[\"['c\"])");
    reads("{{ x   is\n not   none }}{{ a [ - 1 ] }}", "O(x is not none)O(a[-1])");
    reads("{{ a['b']if c }}{{ a and['b'] }}", "O(a.b if c)O(a and.b)"); /* fits nothing */
}

static void test_statements(void) {
    reads("{%if x%}a{%elif(y)%}b{%else%}c{%endif%}",
          "B(if x)T(a)B(elif(y))T(b)B(else)T(c)B(endif)");
    reads("{% for a, b in c if d %}{% endfor %}", "B(for a,b in c if d)B(endfor)");
    reads("{% if '%}' in x %}\n", "B(if'%}'in x)");
    reads("{% set x = 'a' %}b", "B(set x='a')T(b)");
    reads("{% set n.x = 1 %}{% set a, b = c %}{% set (d) = e %}",
          "B(set n.x=1)B(set a,b=c)B(set(d)=e)");
    reads("{% generation %}a{% endgeneration %}", "B(generation)T(a)B(endgeneration)");
    /* what they have is not written here */
    reads("{% set x %}a{{ b }}{% endset %}c", "B(set x)T(c)");
    reads("{% set x | f(y=1) %}a{% endset %}c", "B(set x|f(y=1))T(c)");
    reads("{% macro m(a='b') %}c{% set d %}e{% endset %}f{{ g }}{% endmacro %}h",
          "B(macro m(a='b'))T(h)");
    reads("{% call(a) b() %}c{% endcall %}d{% filter upper %}e{% endfilter %}f",
          "B(call(a)b())T(d)B(filter upper)T(f)");
    reads("{% raw %}{{ 'a' }}{% b {% endraw x %}{%- endraw -%} c", "B(raw)T(c)");
    reads("{%-raw-%}a{%endraw%}\nb{% raw %}", "");
    reads("{%-raw-%}a{%endraw%}\nb", "B(raw)T(b)");
    reads("{% macro m() %}a", "");
    reads("{% set x %}a", "");
    reads("a{% endmacro %}", "");
    reads("a{% endmacro %}b{% macro m() %}", "");
    reads("a{% include 'b' %}", "");
    reads("a{% with messages = [] %}", "");
    reads("a{% iff x %}", "");
    reads("{% for a in b %}{% break %}{% endfor %}", ""); /* what comes behind is not certain */
    reads("{% for a in b %}{% continue %}{% endfor %}", "");
    reads("a{% %}", "");
}

/* What is left out where a template is not compared as a whole. */
static void test_all(void) {
    reads_all("{% macro m(a='b') %}c{% set d %}e{% endset %}f{{ g }}{% endmacro %}h",
              "B(macro m(a='b'))T(c)B(set d)T(f)O(g)B(endmacro)T(h)");
    reads_all("{% for a in b %}{% break %}c{%- continue -%} {% endfor %}",
              "B(for a in b)B(break)T(c)B(continue)B(endfor)");
    reads_all("{% if x %}{% endif %}", "B(if x)B(endif)");
    reads_all("{% call(a) b() %}c{% endcall %}d", "B(call(a)b())T(d)");
    reads_all("a{% endcall %}", "");
    reads_all("a{% include 'b' %}", "");
}

/* As much of it as is there, and no more. */
static void test_unreadable(void) {
    static const char *const cut[] = {"a{{",      "a{{ b",     "a{{ b }", "a{{ 'b }}",
                                      "a{{ 'b\\", "a{{ (b }}", "a{%",     "a{% if x",
                                      "a{#",      "a{{-",      "a{%-"};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) reads(cut[i], "");
    reads("a{", "T(a{)");
    reads("{{ a } }}", "");
    reads("{% if b) %}", "");
    reads("{% if b ] %}", "");
    reads("{% if b) or (c %}", "");
    omm_buf out;
    omm_buf_init(&out, 64);
    write_parts(&out, "a\0b{{ '\0' }}{{ \0 }}", 19, false);
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_of("T(a\0b\0)O(\0)", 11)));
    omm_buf_fini(&out);
}

static void test_limits(void) {
    static char text[JINJA_BYTES_MAX + 2];
    jinja_parts p;
    for (size_t i = 0; i < (size_t)5 * JINJA_PARTS_MAX + 5; i++) text[i] = "{{x}}"[i % 5];
    CHECK_OK(jinja_parts_read(&p, omm_bytes_of(text, (size_t)5 * JINJA_PARTS_MAX)));
    CHECK_EQ(p.count, JINJA_PARTS_MAX);
    jinja_parts_fini(&p);
    CHECK_OK(jinja_parts_read(&p, omm_bytes_of(text, (size_t)5 * JINJA_PARTS_MAX + 5)));
    CHECK_EQ(p.count, 0);
    jinja_parts_fini(&p);
    memset(text, 'a', sizeof text);
    for (size_t more = 0; more < 2; more++) {
        CHECK_OK(jinja_parts_read(&p, omm_bytes_of(text, JINJA_BYTES_MAX + more)));
        CHECK_EQ(p.count, 1 - more);
        jinja_parts_fini(&p);
    }
}

static void test_memory(void) {
    const omm_bytes jinja = omm_bytes_str("a{{ 'b' + c }}{% if x %}");
    jinja_parts p;
    omm_err err = OMM_ERR_NOMEM;
    size_t nth = 0;
    while (err == OMM_ERR_NOMEM && nth < 100) {
        omm_mem_fail_nth(++nth);
        err = jinja_parts_read(&p, jinja);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err != OMM_OK) CHECK_EQ(p.count, 0);
        jinja_parts_fini(&p);
    }
    CHECK_OK(err);
    CHECK(nth > 3);
}

/* What begins and what ends a text do not share letters. */
static void test_between(void) {
    bool found = false;
    CHECK_EQ(jinja_between(&found, omm_bytes_str("a'b'"), "a'", "'").size, 1);
    CHECK(found);
    CHECK_EQ(jinja_between(&found, omm_bytes_str("a''"), "a'", "'").size, 0);
    CHECK(found);
    CHECK_EQ(jinja_between(&found, omm_bytes_str("a'"), "a'", "'").size, 0);
    CHECK(!found);
}

/* A name that the template chose, and none that conditions ask about. */
static void test_names(void) {
    static const char *const none[] = {"for loop in x",    "for messages in x", "for tools in x",
                                       "for content in x", "for a.b in x",      "for a,b in x",
                                       "for  in x",        "for a in y"};
    CHECK(omm_bytes_equal(jinja_name_between(omm_bytes_str("for a_1 in x"), "for ", " in x"),
                          omm_bytes_str("a_1")));
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK_EQ(jinja_name_between(omm_bytes_str(none[i]), "for ", " in x").size, 0);
}

/* One literal, all of what is behind the start. */
static void test_literal(void) {
    static const struct {
        const char *text, *says; /* NULL: it is none */
    } cases[] = {{"set a='b\\n\\\\\\'\\\"'", "b\n\\'\""},
                 {"set a=\"it's\"", "it's"},
                 {"set a=''", ""},
                 {"set a='", NULL},
                 {"set a=", NULL},
                 {"set a=b", NULL},
                 {"set a='b\"", NULL},
                 {"set a='b", NULL},
                 {"set a='b'+'c'", NULL},
                 {"set a='b\\'", NULL},
                 {"set a='b\\t'", NULL},
                 {"set b='a'", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_buf out;
        omm_err err = OMM_OK;
        omm_buf_init(&out, 64);
        const bool is = jinja_put_literal(&err, &out, omm_bytes_str(cases[i].text), "set a=");
        CHECK_OK(err);
        CHECK_EQ(is, cases[i].says != NULL);
        if (is) CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(cases[i].says)));
        omm_buf_fini(&out);
    }
    omm_buf out;
    omm_err err = OMM_OK;
    omm_buf_init(&out, 64); /* no escape of U+0000 */
    CHECK(!jinja_put_literal(&err, &out, omm_bytes_of("'\\\0'", 4), ""));
    omm_buf_fini(&out);
    omm_buf_init(&out, 1);
    CHECK(!jinja_put_literal(&err, &out, omm_bytes_str("'ab'"), ""));
    CHECK_ERR(err, OMM_ERR_TOO_BIG);
    omm_buf_fini(&out);
}

int main(void) {
    test_space();
    test_wide_space();
    test_comments();
    test_outputs();
    test_spelling();
    test_statements();
    test_all();
    test_unreadable();
    test_limits();
    test_between();
    test_names();
    test_literal();
    test_memory();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
