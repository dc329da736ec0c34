"""A GGUF file with another chat template, or that says it has more positions: one key is replaced, all else stays as it is."""
import pathlib, struct

from split_gguf import ALIGNMENT, STRING, Reader, text

KEY = "tokenizer.chat_template"
OPENS = "{{ '<|im_start|>' ~ turn.role ~ '\\n' ~ turn.content.split('</think>')[-1] ~ '<|im_end|>' }}{% if add_generation_prompt %}" \
        "{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"
OWN = OPENS.replace("<think>\\n'", "' ~ ('' if enable_thinking else '<think>\\n\\n</think>\\n\\n')")


def padded(data):
    return data + bytes(-len(data) % ALIGNMENT)


# As of a Llama 3, which writes calls bare; its marks take the place of the base model's.
LLAMA3 = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}{%- else %}{%- set system_message = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none and not tools_in_user_message %}
    {{- 'Call: {"name": N, "parameters": P}.\\n\\n' }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\\n\\n' }}{%- endfor %}
{%- endif %}
{{- system_message }}{{- '<|eot_id|>' }}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}{{- tool_call.arguments | tojson }}{{- '}<|eot_id|>' }}
    {%- else %}{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content + '<|eot_id|>' }}{%- endif %}
{%- endfor %}
"""
LLAMA3_MARKS = {"<|im_start|>": "<|start_header_id|>", "<|endoftext|>": "<|end_header_id|>", "<|im_end|>": "<|eot_id|>"}
# As of a Granite 3, which writes calls as a list behind a mark.
GRANITE = """{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set system_message = "Today: " + strftime_now('%B %d, %Y') + ". You help." %}
    {%- if tools and documents %}{%- set system_message = system_message + " Read and call." %}
    {%- elif tools %}{%- set system_message = system_message + " Call <|tool_call|>." %}
    {%- else %}{%- set system_message = system_message + " Talk." %}{%- endif %}{%- set loop_messages = messages %}{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\\n' }}
{%- if tools %}{{- '<|start_of_role|>tools<|end_of_role|>' }}{{- tools | tojson(indent=4) }}{{- '<|end_of_text|>\\n' }}{%- endif %}
{%- for message in loop_messages %}{{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>\\n' }}{%- endfor %}
"""
GRANITE_MARKS = {"<|im_start|>": "<|start_of_role|>", "<|endoftext|>": "<|end_of_role|>", "<|im_end|>": "<|end_of_text|>",
                 "<tool_call>": "<|tool_call|>"}


def renamed(r, marks):
    """The array of texts that the reader stands before, some of them others."""
    of, count = r.take("I"), r.take("Q")
    out = [struct.pack("<IQ", of, count)]
    for _ in range(count):
        at = r.at
        r.skip_string()
        new = marks.get(r.data[at + 8:r.at].decode())
        out.append(text(new) if new else r.data[at:r.at])
    return b"".join(out)


def retemplate(model, path, jinja, marks={}):
    data = pathlib.Path(model).read_bytes()
    r = Reader(data)
    r.at = 8
    tensors, keys = r.take("Q"), r.take("Q")
    out, found = [data[:24]], False
    for _ in range(keys):
        at = r.at
        r.skip_string()
        name, value = data[at + 8:r.at].decode(), r.at
        kind = r.take("I")
        if name == "tokenizer.ggml.tokens":
            out.append(data[at:r.at] + renamed(r, marks))
            continue
        r.skip_value(kind)
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
