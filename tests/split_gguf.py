#!/usr/bin/env python3
"""One GGUF file as several, as other tools split large models: the first has all keys, each has its tensors.

usage: split_gguf.py MODEL FOLDER NAME PARTS     (writes FOLDER/NAME-00001-of-0000N.gguf and so on)
"""
import pathlib, struct, sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, U16, U32, I32 = 8, 9, 2, 4, 5
ALIGNMENT = 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value[0]

    def skip_string(self):
        size = self.take("Q")
        self.at += size

    def skip_value(self, kind):
        if kind == STRING:
            self.skip_string()
        elif kind == ARRAY:
            of, count = self.take("I"), self.take("Q")
            for _ in range(count if of == STRING else 0):
                self.skip_string()
            self.at += 0 if of == STRING else SIZES[of] * count
        else:
            self.at += SIZES[kind]


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def split_keys(no, count, tensors):
    return (text("split.no") + struct.pack("<IH", U16, no) + text("split.count") + struct.pack("<IH", U16, count)
            + text("split.tensors.count") + struct.pack("<Ii", I32, tensors))


def read(data):
    """The keys as they stand, their number, and (head without its offset, data) of each tensor."""
    r = Reader(data)
    assert data[:4] == b"GGUF" and struct.unpack_from("<I", data, 4)[0] == 3
    r.at = 8
    tensor_count, key_count = r.take("Q"), r.take("Q")
    begin = r.at
    for _ in range(key_count):
        r.skip_string()
        r.skip_value(r.take("I"))
    keys, heads = data[begin:r.at], []
    for _ in range(tensor_count):
        at = r.at
        r.skip_string()
        dimensions = r.take("I")
        r.at += 8 * dimensions + 4
        heads.append((data[at:r.at], r.take("Q")))
    begin = -(-r.at // ALIGNMENT) * ALIGNMENT
    ends = sorted(offset for _, offset in heads) + [len(data) - begin]
    return keys, key_count, [(head, data[begin + at:begin + ends[ends.index(at) + 1]]) for head, at in heads]


def split(data, parts):
    keys, key_count, tensors = read(data)
    each, files = -(-len(tensors) // parts), []
    for no in range(parts):
        own = tensors[no * each:(no + 1) * each]
        head = b"GGUF" + struct.pack("<IQQ", 3, len(own), 3 + (key_count if no == 0 else 0))
        head += (keys if no == 0 else b"") + split_keys(no, parts, len(tensors))
        body = b""
        for tensor, values in own:
            head += tensor + struct.pack("<Q", len(body))
            body += values + bytes(-len(values) % ALIGNMENT)
        files.append(head + bytes(-len(head) % ALIGNMENT) + body)
    return files


def write(model, folder, name, parts):
    """The paths, first to last."""
    paths = [pathlib.Path(folder) / f"{name}-{i + 1:05d}-of-{parts:05d}.gguf" for i in range(parts)]
    for path, part in zip(paths, split(pathlib.Path(model).read_bytes(), parts)):
        path.write_bytes(part)
    return paths


if __name__ == "__main__":
    print("\n".join(map(str, write(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))))
