#!/usr/bin/env python3
"""The samples of scenarios/base/README.md: what a base model writes, greedy, for prompts that were fixed beforehand.

usage: samples.py MESHMIND MODEL

In plain ones the prompt is the beginning of the text, in the others everything before the last assistant's turn; no
adapter, nothing chosen.  Standard library only.
"""
import subprocess, sys

TURNS = [
    ("You are a helpful assistant. Tools: calculator, note_save.", "What is 47 times 86?"),
    ("You are a helpful assistant. Tools: calculator, note_save.", "Please remember that the red bucket is behind the barn."),
    (None, "Mira lives in Dovelin. She is 34 years old and works as a nurse. Her brother Paul is a pilot.\nWhat is the job of Mira?"),
    (None, "Mira lives in Dovelin. She is 34 years old and works as a nurse.\nWhat is the favorite color of Mira?"),
    ("You are OpenMeshMind, a small assistant that runs on this machine.", "Hello! Who are you?"),
    (None, "What is a coordinator?"),
    (None, "What is the capital of Norway?"),
    (None, "Write a short story."),
    ("You are a helpful assistant. Tools: timer_set(minutes, label).", "Set a timer for 12 minutes for tea."),
    ("You are a helpful assistant. Tools: note_save(text), note_find(query).", "Save this note: call Nora on Friday"),
    ("Answer from the text only.", "There will be a concert. It begins at 7 in the evening. It takes place at the castle. The entry is 12 coins.\n"
                                   "Where is the concert?"),
    ("Answer from the text only.", "Tavilo is an invented place. The ruler is Petra. 4821 people live there.\nHow many people live in Tavilo?"),
]
AFTER_A_TOOL = ("<|im_start|>system\nYou are a helpful assistant. Tools: search_docs.<|im_end|>\n"
                "<|im_start|>user\nWhen does the night market in Velden open?<|im_end|>\n"
                "<|im_start|>assistant\n<tool_call>\n{\"name\": \"search_docs\", \"arguments\": {\"query\": \"night market\"}}\n</tool_call>"
                "<|im_end|>\n<|im_start|>tool\nThe night market in Velden opens at 8 in the evening. It is closed on Monday.<|im_end|>\n"
                "<|im_start|>assistant\n")
PLAIN = ["One day, a kind girl named Anna", "It was raining all night.", "A hammer is a tool", "In OpenMeshMind, a node is",
         "The old lighthouse"]


def prompt_of(system, user):
    head = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return f"{head}<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    for prompt in PLAIN + [prompt_of(*turn) for turn in TURNS] + [AFTER_A_TOOL]:
        done = subprocess.run([sys.argv[1], "generate", "-m", sys.argv[2], "--special", "-n", "110", prompt], capture_output=True,
                              text=True)
        if done.returncode != 0:
            sys.exit(f"samples.py: {done.stderr.strip()}")
        text = done.stdout.rstrip("\n")
        text = text if text.startswith(prompt[:20]) else prompt + text
        print("".join(f"    {line}\n" for line in text.split("\n")))


main()
