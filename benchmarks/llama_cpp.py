"""Compare text generation from 4-bit weights with llama.cpp: the time of a token, and of a prompt.

    pip install llama-cpp-python gguf numba
    python benchmarks/llama_cpp.py [--threads 1,2] [--layers 22] [--json benchmarks/results/llama_cpp.json]

Both programs load the same file, a Llama of 1.1 billion parameters with random weights of the type Q4_0. Each runs in its own process. They
take turns, since other programs on the machine slow both of them down, and each figure is the fastest of all turns. The speed is a ratio of
processor times, of all threads together, which depend less on other programs than elapsed times do. Without llama-cpp-python, the program
ends with a message. It needs about 8 GB of memory.
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # not this folder, in which this file would be the package llama_cpp
VOCABULARY, WIDTH, HEADS, KV_HEADS, HIDDEN, CONTEXT = 32000, 2048, 32, 4, 5632, 1024
TURNS, TOKENS, PROMPT = 8, 16, 512  # turns of each program, tokens of a turn, and tokens of the prompt
PAUSE = 0.1  # seconds after a turn, in which the threads of a program come to rest


def write(path, layers):
    """Writes the model. The values of a weight have a standard deviation of about 0.02."""
    import gguf

    rng, writer = np.random.default_rng(0), gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("none")

    def add(name, rows, columns):
        scales = (0.02 / 4.6 * rng.uniform(0.5, 1.5, (rows, columns // 32, 1))).astype("<f2").view("uint8")
        codes = rng.integers(0, 256, (rows, columns // 32, 16), "uint8")
        blocks = np.concatenate([scales, codes], axis=2).reshape(rows, -1)
        writer.add_tensor(name, blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    add("token_embd.weight", VOCABULARY, WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, "float32"))
    add("output.weight", VOCABULARY, WIDTH)
    narrow = WIDTH // HEADS * KV_HEADS
    for i in range(layers):
        for name, rows, columns in (
            ("attn_q", WIDTH, WIDTH), ("attn_k", narrow, WIDTH), ("attn_v", narrow, WIDTH), ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", HIDDEN, WIDTH), ("ffn_up", HIDDEN, WIDTH), ("ffn_down", WIDTH, HIDDEN),
        ):  # fmt: skip
            add(f"blk.{i}.{name}.weight", rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(WIDTH, "float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def mytorch_model(path, threads):
    """Returns a function of tokens that adds them to the text and returns the logits of the last one, and one that resets the text."""
    import mytorch
    from mytorch import models

    mytorch.set_num_threads(threads)
    model = models.quantize_(models.from_pretrained(path), "int4", group_size=32)
    cache = model.new_cache(1, CONTEXT)

    def run(tokens):
        with mytorch.no_grad():
            return model(mytorch.tensor([tokens]), cache=cache, last_only=True)[0, -1].numpy()

    return run, cache.reset


def llama_cpp_model(path, threads):
    """Returns the same functions for llama.cpp."""
    import llama_cpp

    model = llama_cpp.Llama(
        path, n_ctx=CONTEXT, n_batch=PROMPT, n_ubatch=PROMPT, n_threads=threads, n_threads_batch=threads, verbose=False
    )

    def run(tokens):
        model.eval(tokens)
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, -1), (VOCABULARY,)).copy()

    return run, model.reset


def serve(make, path, threads, pipe):
    """Answers each list of turns of tokens with the seconds of each turn, (elapsed, of the processor), and the last logits."""
    run, reset = make(path, threads)
    run([1, 2, 3])
    while (turns := pipe.recv()) is not None:
        times = []
        if turns[0] == "reset":
            reset()
            turns = turns[1:]
        for tokens in turns:
            elapsed, processor = time.perf_counter(), time.process_time()
            logits = run(tokens)
            times.append((time.perf_counter() - elapsed, time.process_time() - processor))
        pipe.send((times, logits))


def measure(path, threads):
    """Returns the milliseconds of both programs for a token and for the prompt, and how far their logits differ."""
    context, pipes, processes = multiprocessing.get_context("spawn"), {}, []
    for make in (mytorch_model, llama_cpp_model):
        here, there = context.Pipe()
        processes.append(context.Process(target=serve, args=(make, path, threads, there), daemon=True))
        processes[-1].start()
        pipes[make.__name__.removesuffix("_model")] = here
    rng, best, logits = np.random.default_rng(0), {}, {}
    for turn in range(TURNS + 1):
        single = rng.integers(0, VOCABULARY, (TOKENS, 1)).tolist()
        prompt = rng.integers(0, VOCABULARY, PROMPT).tolist()
        turns = {"token": ["reset", single[0] * 32, *single]}
        if turn % 3 == 0:  # a prompt takes much longer than a turn of tokens
            turns["prompt"] = ["reset", prompt]
        for kind, sent in turns.items():
            for name, pipe in pipes.items():
                pipe.send(sent)
                times, logits[name] = pipe.recv()
                # The first tokens of a turn load the caches, and the first turn compiles.
                for elapsed, processor in times[2:] if kind == "token" else times:
                    for clock, seconds in (("elapsed", elapsed), ("processor", processor)):
                        best.setdefault((kind, name, clock), []).append(1e3 * seconds)
                time.sleep(PAUSE)
            ours, theirs = logits.values()
            difference = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    for pipe, process in zip(pipes.values(), processes, strict=True):
        pipe.send(None)
        process.join()
    rows = []
    for kind in ("token", "prompt"):
        row = {"name": kind, "threads": threads, "logits_differ": round(difference, 4)}
        row |= {f"{name}_{clock}_ms": round(min(ms), 2) for (k, name, clock), ms in best.items() if k == kind}
        row["speed"] = round(row["llama_cpp_processor_ms"] / row["mytorch_processor_ms"], 3)
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default: 1,2)")
    parser.add_argument("--layers", type=int, default=22, help="number of layers (default: 22)")
    parser.add_argument("--json", help="path of a JSON file for the rows")
    args = parser.parse_args()
    if missing := [name for name in ("llama_cpp", "gguf", "numba") if importlib.util.find_spec(name) is None]:
        print(f"Skipped: {', '.join(missing)} not installed. Run pip install llama-cpp-python gguf numba.")
        return
    from benchmarks.gpt2 import machine

    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # which may disable the widest vector instructions in NumPy
        os.environ.pop(name, None)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "random-Q4_0.gguf")
        write(path, args.layers)
        for threads in map(int, args.threads.split(",")):
            for row in measure(path, threads):
                print(
                    "{name:6} {threads} threads: mytorch {mytorch_elapsed_ms:8.1f} ms, llama.cpp {llama_cpp_elapsed_ms:8.1f} ms, processor "
                    "{mytorch_processor_ms:8.1f} and {llama_cpp_processor_ms:8.1f} ms, speed {speed:.2f}, logits differ by "
                    "{logits_differ:.1%}".format(**row),
                    flush=True,
                )
                rows.append(row)
    if args.json:
        result = {"benchmark": "llama_cpp", "machine": machine(), "layers": args.layers, "rows": rows}
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
