/* commands.h - the table of subcommands.  A new one is one line here and one file cmd_<name>.c.
 *
 * Each command gets argv with its own name at argv[0] and returns the exit code:
 * 0 pass, 1 a gate or check failed, 2 usage or configuration, 3 run-time failure.
 */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

/* XX(name, one-line summary), in the order `meshmind --help` lists them. */
#define CLI_COMMAND_MAP(XX)                                                                        \
    XX(simulate, "run a federated scenario in one process; write a signed bundle")                 \
    XX(verify, "check a bundle: files, signatures, chain, sums, verdicts")                         \
    XX(gate, "judge a bundle again by a policy")                                                   \
    XX(compare, "two settings against each other, from the bundles of their runs")                 \
    XX(replay, "train one submission of a bundle again and compare bytes")                         \
    XX(train, "a LoRA adapter from chats, completions or text")                                    \
    XX(pretrain, "a small model from nothing, vocabulary included")                                \
    XX(data, "what is in a data file, and what is wrong with it")                                  \
    XX(adapter, "LoRA adapters: show, merge, to and from PEFT folders")                            \
    XX(chat, "talk with a model that has tools")                                                   \
    XX(generate, "continue a prompt, or answer it")                                                \
    XX(serve, "a model over HTTP, as OpenAI's API has it")                                         \
    XX(coordinator, "run a federation as a service")                                               \
    XX(node, "train for a coordinator on data that stays here")                                    \
    XX(keygen, "a new key")                                                                        \
    XX(tokenize, "token ids of a text")                                                            \
    XX(logits, "logits after every token of a list")                                               \
    XX(perplexity, "how well a model predicts a text")                                             \
    XX(inspect, "keys and tensors of a GGUF model or adapter")                                     \
    XX(bench, "speed of a model, and its share of the machine's peaks")                            \
    XX(quantize, "a model in other element types")                                                 \
    XX(synth, "a model of random weights, for benchmarks")

#define XX(name, summary) int cmd_##name(int argc, char **argv);
CLI_COMMAND_MAP(XX)
#undef XX

#endif
