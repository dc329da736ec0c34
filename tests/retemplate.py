"""A GGUF file with another chat template, or that says it has more positions: one key is replaced, all else stays as it is."""
import pathlib, struct

from split_gguf import ALIGNMENT, STRING, Reader, text

KEY = "tokenizer.chat_template"
OPENS = "{{ '<|im_start|>' ~ turn.content.split('</think>')[-1] ~ '<|im_end|>' }}{% if add_generation_prompt %}" \
        "{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"
OWN = OPENS.replace("<think>\\n'", "' ~ ('' if enable_thinking else '<think>\\n\\n</think>\\n\\n')")


def padded(data):
    return data + bytes(-len(data) % ALIGNMENT)


def retemplate(model, path, jinja):
    data = pathlib.Path(model).read_bytes()
    r = Reader(data)
    r.at = 8
    tensors, keys = r.take("Q"), r.take("Q")
    out, found = [data[:24]], False
    for _ in range(keys):
        at = r.at
        r.skip_string()
        name, value = data[at + 8:r.at].decode(), r.at
        r.skip_value(r.take("I"))
        found |= name == KEY
        out.append(data[at:value] + struct.pack("<I", STRING) + text(jinja) if name == KEY else data[at:r.at])
    assert found, f"{model} has no {KEY}"
    heads = r.at
    for _ in range(tensors):
        r.skip_string()
        dims = r.take("I")
        r.at += 8 * dims + 4 + 8  # type, offset
    out.append(data[heads:r.at])
    pathlib.Path(path).write_bytes(padded(b"".join(out)) + data[len(padded(data[:r.at])):])
    return path


def with_positions(model, path, positions):
    """Of a llama; 2048 and more are room for tools as the template announces them."""
    data, key = pathlib.Path(model).read_bytes(), text("llama.context_length") + struct.pack("<I", 4)
    assert data.count(key) == 1, f"{model} does not say its context"
    at = data.index(key) + len(key)
    pathlib.Path(path).write_bytes(data[:at] + struct.pack("<I", positions) + data[at + 4:])
    return path
