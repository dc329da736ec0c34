/* pretoken_table.c - which regular expressions belong to which value of tokenizer.ggml.pre.
 *
 * Each family has the expressions that its models publish (tokenizer.json), applied as the reference
 * implementation does.  Five things are spelled differently, with the same meaning:
 *   \s       as Unicode White_Space (PCRE2's own \s has U+180E besides);
 *   (?i:'s)  letter by letter (U+017F is an s in another case);
 *   \p{Han}  as the script alone (PCRE2 would take what the script shares with others);
 *   &&       of Kimi-K2, which PCRE2 lacks, as the complement of what is left out;
 *   (?=(\d{3})+(?!\d)) and its like, which looks ahead from every digit, as runs that are then cut in
 *            threes from the right: the published form takes the square of the digits' number.
 * The last families before default merge characters, not bytes: with U+2581 for a space over a whole line, or between
 * white space.  Embedding models put separators around each text, which are no matter of words: they are not added.
 * No expression may look at a character more often than a constant number of times, however the
 * text is made: pretoken_test.c measures it.  So \s+$ and \d+\b begin where a run begins.
 */
#include "tokenizer_internal.h"

/* clang-format off */
#define WS                                                                                         \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"   \
    "\\x{3000}"
#define SPACE "[" WS "]"
#define NO_SPACE "[^" WS "]"
#define SPACES "|" SPACE "+(?!" NO_SPACE ")|" SPACE "+" /* the last of a run stays with its word */

#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+" SPACES
#define SHORT "'[sS\\x{17f}]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
#define CONTRACTIONS "(?:" SHORT ")"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?" /* one character in front of a word */
#define MARKS "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*"
#define MARKS_SLASH "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*"
#define LINES "|" SPACE "*[\\r\\n]+"
#define CL100K(digits)                                                                             \
    CONTRACTIONS "|" BEFORE "\\p{L}+|" digits MARKS LINES SPACES

/* Words by case: capitals, then small letters; what has no case counts as both. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_WORDS(upper, lower, after)                                                           \
    BEFORE upper "*" lower "+" after "|" BEFORE upper "+" lower "*" after
#define O200K                                                                                      \
    CASED_WORDS(UPPER, LOWER, CONTRACTIONS "?") "|\\p{N}{1,3}" MARKS_SLASH LINES SPACES
#define TEKKEN CASED_WORDS(UPPER, LOWER, "") "|\\p{N}" MARKS_SLASH LINES SPACES

/* Kimi-K2: the same words without Han characters. */
#define UPPER_NO_HAN "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"
#define LOWER_NO_HAN "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"
#define KIMI                                                                                       \
    "\\p{sc:Han}+|" CASED_WORDS(UPPER_NO_HAN, LOWER_NO_HAN, CONTRACTIONS "?") "|\\p{N}{1,3}" MARKS    \
    LINES SPACES

/* DeepSeek: letters that have case, of the Unicode version that the model was made with. */
#define CASED                                                                                      \
    "A-Za-z\\xb5\\xc0-\\xd6\\xd8-\\xf6\\xf8-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}"            \
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}"          \
    "\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"                 \
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"                     \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}"                 \
    "\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}"                 \
    "\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}"         \
    "\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}"        \
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"                 \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}"         \
    "\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}"         \
    "\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}"                   \
    "\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}"                  \
    "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"                 \
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}"                 \
    "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"             \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"         \
    "\\x{1e900}-\\x{1e943}"
#define CJK_OLD "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define CJK "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define ASCII_MARK "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK3(marks, lines)                                                                    \
    ASCII_MARK "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+" marks     \
    lines SPACES

#define YOUTU_CJK                                                                                  \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}"     \
    "\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|"       \
    "[\\x{3105}-\\x{312f}]+|" CJK
#define AFMOE_ASIA                                                                                 \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{309f}\\x{30a0}-"      \
    "\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}\\x{e80}-\\x{eff}\\x{1780}-"  \
    "\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}"        \
    "\\x{1100}-\\x{11ff}]+"
#define BLOOM                                                                                      \
    " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
/* Runs of white space are cut into pieces: where the first found no line end in the run, the next ones do not look again. */
#define JAIS2_LINES                                                                                \
    "|(?<![\\x09\\x0b\\x0c\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"             \
    "\\x{202f}\\x{205f}\\x{3000}])" SPACE "*[\\r\\n]+"
#define JAIS2_SPACES                                                                               \
    "|" SPACE "{512}(?!" NO_SPACE ")|" SPACE "{256}(?!" NO_SPACE ")|" SPACE "{128}(?!" NO_SPACE    \
    ")|" SPACE "{64}(?!" NO_SPACE ")|" SPACE "{32}(?!" NO_SPACE ")|" SPACE "{16}(?!" NO_SPACE      \
    ")|" SPACE "{8}(?!" NO_SPACE ")|" SPACE "{4}(?!" NO_SPACE ")|" SPACE "{1,2}(?!" NO_SPACE       \
    ")|" SPACE "{1}"
/* A run of digits before anything but a letter, mark, digit or connector. */
#define AYA_DIGITS                                                                                 \
    "(?<!\\p{Nd})\\p{Nd}++(?![\\p{L}\\p{M}\\p{N}\\p{Pc}])"
/* clang-format on */

const pretoken_family pretoken_families[] = {
    {" gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum "
     "jina-es jina-de jina-v2-es jina-v2-de modern-bert jina-v1-en jina-v2-code roberta-bpe ",
     {.name = "gpt-2", .patterns = {GPT2}, .stage_count = 1}},
    {" starcoder refact command-r smollm codeshell exaone minerva-7b mellum2 ",
     {.name = "starcoder", .patterns = {"\\p{N}", GPT2}, .stage_count = 2}},
    {" falcon ",
     {.name = "falcon",
      .patterns = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"},
      .stage_count = 3}},
    {" qwen2 stablelm2 deepseek-r1-qwen megrez hunyuan solar-open grok-2 kormo f2llmv2 ",
     {.name = "qwen2", .patterns = {CL100K("\\p{N}")}, .stage_count = 1}},
    {" qwen35 ",
     {.name = "qwen35",
      .patterns = {CONTRACTIONS "|" BEFORE "[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS
                                "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES SPACES},
      .stage_count = 1}},
    {" llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
     {.name = "llama3",
      .patterns = {CL100K("\\p{N}{1,3}")},
      .stage_count = 1,
      .whole_words = true,
      .adds_bos = true}},
    {" dbrx smaug-bpe chatglm-bpe ",
     {.name = "dbrx", .patterns = {CL100K("\\p{N}{1,3}")}, .stage_count = 1}},
    {" glm4 glm5 ",
     {.name = "glm4", .patterns = {CL100K("\\p{N}{1,3}")}, .stage_count = 1, .whole_words = true}},
    {" minicpm5 ",
     {.name = "minicpm5",
      .patterns = {"\\p{N}{1,3}", CL100K("\\p{N}+")},
      .stage_count = 2,
      .whole_words = true}},
    {" jais-2 ",
     {.name = "jais-2",
      .patterns = {CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}{1,3}" MARKS JAIS2_LINES JAIS2_SPACES},
      .stage_count = 1}},
    {" gpt-4o llama4 kanana2 talkie minimax-m2 ",
     {.name = "gpt-4o", .patterns = {O200K}, .stage_count = 1}},
    {" granite-embed-multi-97m ",
     {.name = "granite-embed", .patterns = {O200K}, .stage_count = 1, .whole_words = true}},
    {" tekken ",
     {.name = "tekken",
      .patterns = {TEKKEN},
      .stage_count = 1,
      .whole_words = true,
      .adds_bos = true}},
    {" tiny_aya cohere2moe ",
     {.name = "tiny_aya", .patterns = {AYA_DIGITS, O200K}, .stage_count = 2, .threes = 1u << 0}},
    {" kimi-k2 ", {.name = "kimi-k2", .patterns = {KIMI}, .stage_count = 1}},
    {" deepseek-llm ",
     {.name = "deepseek-llm",
      .patterns = {"[\\r\\n]", SPACE "?[" CASED "]+",
                   SPACE "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}"
                         "\\x{3000}-\\x{3002}]+",
                   "(?<!" SPACE ")" SPACE "++\\z", CJK_OLD, "\\p{N}+"},
      .stage_count = 6}},
    {" deepseek-coder ",
     {.name = "deepseek-coder",
      .patterns = {"[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", CJK_OLD, "\\p{N}"},
      .stage_count = 5}},
    {" deepseek-v3 hunyuan-dense joyai-llm hy_v4 ",
     {.name = "deepseek-v3",
      .patterns = {"\\p{N}{1,3}", CJK, DEEPSEEK3("[\\r\\n]*", LINES)},
      .stage_count = 3}},
    {" spark2_5 ",
     {.name = "spark2_5",
      .patterns = {"\\p{N}{1,3}", CJK, DEEPSEEK3("", "|[\\r\\n]"), "\\p{N}"},
      .stage_count = 4}},
    {" youtu ",
     {.name = "youtu",
      .patterns = {YOUTU_CJK,
                   CASED_WORDS(UPPER, LOWER, CONTRACTIONS "?") "|\\p{N}" MARKS_SLASH LINES SPACES},
      .stage_count = 2,
      .whole_words = true}},
    {" afmoe ",
     {.name = "afmoe",
      .patterns = {"\\p{N}+", AFMOE_ASIA, DEEPSEEK3("[\\r\\n]*", LINES)},
      .stage_count = 3,
      .threes = 1u << 0}},
    {" superbpe ",
     {.name = "superbpe",
      .patterns = {"\\p{N}+", "\\p{Nd}+"},
      .stage_count = 2,
      .threes = 1u << 1,
      .joined = 1u << 1}},
    {" poro-chat bloom gpt3-finnish ", {.name = "bloom", .patterns = {BLOOM}, .stage_count = 1}},
    {" viking ", {.name = "viking", .patterns = {BLOOM, "\\p{N}"}, .stage_count = 2}},
    {" bailingmoe bailingmoe2 llada-moe ",
     {.name = "bailingmoe",
      .patterns = {"'(?:[sS\\x{17f}dDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|" BEFORE
                   "\\p{L}+|\\p{N}" MARKS "|" SPACE "*[\\r\\n]" SPACES},
      .stage_count = 1}},
    {" seed-coder ",
     {.name = "seed-coder",
      .patterns = {CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}| ?[^" WS
                                "\\p{L}\\p{N}\\r\\n]+" LINES SPACES},
      .stage_count = 1}},
    {" ufakzeka ",
     {.name = "ufakzeka",
      .patterns = {BEFORE "\\p{L}+|\\p{N}" MARKS LINES SPACES},
      .stage_count = 1}},
    {" laguna ",
     {.name = "laguna", .patterns = {"[^\\n]+|[\\n]+", CL100K("\\p{N}")}, .stage_count = 2}},
    {" exaone-moe ",
     {.name = "exaone-moe",
      .patterns = {CONTRACTIONS "|" BEFORE
                                "(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}| ?[^" WS
                                "\\p{L}\\p{N}]+[\\r\\n/]?|" SPACE "*[\\r\\n]" SPACES},
      .stage_count = 1}},
    {" chameleon ",
     {.name = "chameleon",
      .patterns = {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}",
                   "[\\p{P}!-/:-@\\[-`{-~]", GPT2},
      .stage_count = 6,
      .adds_bos = true}},
    {" gemma4 granite-embed-multi-311m ",
     {.name = "gemma4",
      .patterns = {"[^\\n]+|[\\n]+"},
      .stage_count = 1,
      .adds_bos = true,
      .always_bos = true,
      .characters = true,
      .marks = true,
      .whole_lines = true}},
    {" sarvam-moe ",
     {.name = "sarvam-moe",
      .patterns = {"[^\\n]+|[\\n]+"},
      .stage_count = 1,
      .characters = true,
      .marks = true}},
    {" whitespace ",
     {.name = "whitespace", .patterns = {NO_SPACE "+"}, .stage_count = 1, .characters = true}},
    {" default ",
     {.name = "default",
      .patterns = {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"},
      .stage_count = 4}},
};

const size_t pretoken_family_count = sizeof pretoken_families / sizeof pretoken_families[0];
