"""Compare models of transformers or timm between mytorch and PyTorch: outputs, gradients, and generated text.

    python benchmarks/models.py torch transformers expected.json [name …]     # with PyTorch: find recipes, write the figures
    python benchmarks/models.py mytorch transformers expected.json [name …]   # with mytorch: run the recipes, compare
    python benchmarks/models.py torch timm expected.json
    python benchmarks/models.py torch generate expected.json                  # generate, save_pretrained, from_pretrained

The sweep builds each configuration class of transformers with small sizes. A recipe is the variant of sizes and inputs that PyTorch
accepts. All weights are set to equal random values. Each model runs in its own process, with a time limit.

With `--steady`, PyTorch runs its recipes again with weights that differ by 1e-6. It removes the models that differ by more
than the tolerance: rounding decides their results.
"""

import argparse
import copy
import inspect
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from pathlib import Path

warnings.filterwarnings("ignore")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("library", choices=["torch", "mytorch"])
parser.add_argument("zoo", choices=["transformers", "timm", "generate"])
parser.add_argument("file", type=Path, help="JSON file with the recipes and PyTorch's figures")
parser.add_argument("names", nargs="*", help="model types; default: all")
parser.add_argument("--steady", action="store_true", help="remove unsteady models from the file")
parser.add_argument("--timeout", type=int, default=60, help="seconds of processor time for each model")
parser.add_argument("--workers", type=int, default=2)
options = parser.parse_args()
if options.library == "mytorch":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import mytorch

    mytorch.install_as_torch()

import numpy as np  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
TOLERANCE = 2e-3

# Fragments of option names -> small values. The first match counts.
SIZES = [
    ("num_key_value_heads|num_kv_heads|n_kv_heads|multi_query_group_num|kv_heads", 2),
    ("head_dim$|d_kv$|dim_head$|attention_head_size|kv_channels|qk_nope_head_dim|v_head_dim", 8),
    ("qk_rope_head_dim|rotary_dim", 4),
    ("q_lora_rank|kv_lora_rank|o_lora_rank|lora_rank", 8),
    ("num_attention_heads|n_head$|num_heads$|attention_heads$|n_heads$|num_head$|decoder_heads|encoder_heads", 4),
    (
        "num_hidden_layers|n_layers?$|num_layers$|encoder_layers$|decoder_layers$|num_blocks|depth$|num_decoder_layers|n_block",
        2,
    ),
    ("intermediate_size|ffn_dim|ffn_hidden|d_ff$|inner_dim|n_inner|mlp_dim|feedforward|dim_feedforward", 48),
    ("image_size|img_size|input_size$", 32),
    ("patch_size", 8),
    ("vocab_size|n_vocab|codebook_size", 120),
    ("max_position|n_positions|max_source|max_target|n_ctx|max_seq|context_length", 64),
    (
        "hidden_size|hidden_dim$|d_model|n_embd|embed_dim|projection_dim|dim$|emb_dim|hidden_channels|width$|proj_dim|out_hidden|embedding_size",
        32,
    ),
    ("num_experts_per_tok|moe_top_?k|top_k_experts|experts_per_token", 2),
    ("num_experts|num_local_experts|n_routed_experts|moe_num_experts", 4),
    ("n_group$|topk_group|num_expert_group", 1),
    ("num_mel_bins|feature_size|n_mels", 16),
    ("num_queries|num_query_tokens|num_latents", 6),
    ("num_conv_pos_embedding", 8),
    ("sliding_window|attention_window|window_size|local_attention|chunk_size|block_size", 8),
    ("state_size|d_state|ssm_state", 8),
    ("mamba_expand|expand$", 2),
]
KEPT = {"conv", "kernel", "stride"}


def small(config, step, images=True):
    """Return the options of a configuration with small sizes. `step` selects a variant."""
    import re

    result = {}
    for key, value in config.items():
        if key.endswith("_config") and isinstance(value, dict):
            result[key] = small(value, step)
            if "model_type" in value:
                result[key]["model_type"] = value["model_type"]
            continue
        if isinstance(value, bool) or value is None:
            continue
        if key in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id") and isinstance(value, int):
            result[key] = min(value, {"pad_token_id": 0, "bos_token_id": 1}.get(key, 2)) if value >= 0 else value
            continue
        if re.search(
            r"(image|video|audio|vision|boi|eoi|speech|placeholder|image_end|image_start).*(token_id|token_index)$", key
        ):
            if isinstance(value, int):
                result[key] = {"image": 110, "video": 111, "audio": 112}.get(
                    key.split("_")[0], 100 + zlib.crc32(key.encode()) % 9
                )
            continue
        for pattern, size in SIZES:
            if re.search(pattern, key):
                if isinstance(value, int):
                    if key == "image_size" and not step["image"]:
                        break
                    if "patch_size" in key and not step["patch"]:
                        break
                    if pattern.startswith("hidden_size") and not step["hidden"]:
                        break
                    limit = size if not (pattern.startswith(("hidden_size", "head_dim")) and step["wide"]) else size * 2
                    result[key] = min(value, limit) if value > 0 else value
                elif (
                    isinstance(value, (list, tuple))
                    and value
                    and all(isinstance(v, int) and not isinstance(v, bool) for v in value)
                ):
                    if pattern.startswith("image_size") and step["image"]:
                        result[key] = type(value)(min(v, size) for v in value)
                    elif re.search("depth|layers", key) and step["lists"]:
                        result[key] = type(value)(min(v, 1) for v in value)
                break
        else:
            if key == "depths" and isinstance(value, (list, tuple)) and step["lists"]:
                result[key] = [1 for _ in value]
            elif (
                key in ("hidden_sizes", "embed_dims", "channels", "neck_hidden_sizes", "widths")
                and isinstance(value, (list, tuple))
                and step["lists"]
            ):
                if all(isinstance(v, int) for v in value):
                    result[key] = [min(v, 16 * (i + 1)) for i, v in enumerate(value)]
    return result


STEPS = [
    {"image": True, "patch": True, "hidden": True, "wide": False, "lists": True},
    {"image": True, "patch": True, "hidden": True, "wide": True, "lists": True},
    {"image": True, "patch": True, "hidden": True, "wide": False, "lists": False},
    {"image": False, "patch": False, "hidden": True, "wide": False, "lists": True},
    {"image": False, "patch": False, "hidden": False, "wide": False, "lists": False},
    None,
]


def config_of(kind, step):
    config = kind()
    if step is None:
        return config
    chosen = small(config.to_dict(), step)
    if "layer_types" in config.to_dict():
        layers = chosen.get("num_hidden_layers", 2)
        kinds = list(dict.fromkeys(config.layer_types)) if config.layer_types else []
        if kinds:
            chosen["layer_types"] = (kinds * layers)[:layers]
    chosen.pop("transformers_version", None)
    return kind(**chosen)


def find(config, *names, default=None):
    """Return the first attribute that the configuration or one of its parts has."""
    seen = [config] + [v for k, v in vars(config).items() if hasattr(v, "to_dict")]
    for name in names:
        for part in seen:
            value = getattr(part, name, None)
            if isinstance(value, (int, list, tuple)) and not isinstance(value, bool):
                return value
    return default


def draw(*shape, seed=1):
    return torch.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def integers(low, high, *shape, seed=1):
    return torch.tensor(np.random.default_rng(seed).integers(low, high, shape))


def inputs_of(model, config, variant):
    """Return the inputs of a model; `variant` selects lengths and layouts."""
    accepted = inspect.signature(model.forward).parameters
    size = find(config, "image_size", "img_size", default=32)
    size = size if isinstance(size, (list, tuple)) else (size, size)
    if variant["size"]:
        size = (variant["size"], variant["size"])
    channels = find(config, "num_channels", "in_channels", "in_chans", default=3)
    channels = channels if isinstance(channels, int) else 3
    vocab = find(config, "vocab_size", default=100)
    vocab = vocab if isinstance(vocab, int) else 100
    length = variant["length"]
    bins = find(config, "num_mel_bins", "feature_size", "n_mels", "input_feat_per_channel", default=16)
    main = getattr(model, "main_input_name", "input_ids")
    ids = integers(3, max(4, min(vocab, 99)), 2, length)
    result = {}
    pictures = draw(2, channels, *size)
    if variant["video"]:
        pictures = draw(2, find(config, "num_frames", default=4), channels, *size)
    if main == "input_ids" or "input_ids" in accepted:
        result["input_ids"] = ids
    if main in ("pixel_values", "pixel_values_videos", "pixel_values_images") or (
        "pixel_values" in accepted and variant["pictures"]
    ):
        result[main if main.startswith("pixel_values") else "pixel_values"] = pictures
        token = find(config, "image_token_id", "image_token_index")
        if isinstance(token, int) and "input_ids" in result and variant["tokens"]:
            ids[:, : variant["tokens"]] = token
    if main == "input_values" or "input_values" in accepted:
        result["input_values"] = (
            draw(2, variant["samples"])
            if not variant["spectrum"]
            else draw(2, find(config, "max_length", default=64), bins)
        )
    if main in ("input_features",) or ("input_features" in accepted and "input_ids" not in result):
        frames = 2 * find(config, "max_source_positions", default=32)
        result["input_features"] = draw(2, bins, frames) if variant["mel_first"] else draw(2, frames, bins)
    if "decoder_input_ids" in accepted and not variant["no_decoder"]:
        result["decoder_input_ids"] = integers(3, max(4, min(vocab, 99)), 2, 7, seed=2)
    if "past_values" in accepted:
        past = find(config, "context_length", default=16) + (
            max(find(config, "lags_sequence", default=[0])) if find(config, "lags_sequence") else 0
        )
        inputs = find(config, "num_input_channels", "input_size", default=1)
        result = {"past_values": draw(2, past) if inputs == 1 and not variant["video"] else draw(2, past, inputs)}
        if "past_time_features" in accepted:
            features = find(config, "num_time_features", default=0)
            result["past_time_features"] = draw(2, past, features)
            result["past_observed_mask"] = torch.ones(result["past_values"].shape)
            ahead = find(config, "prediction_length", default=4)
            result["future_time_features"] = draw(2, ahead, features, seed=3)
            result["future_values"] = draw(2, ahead, seed=4) if inputs == 1 else draw(2, ahead, inputs, seed=4)
    if "bbox" in accepted and "input_ids" in result:
        result["bbox"] = torch.tensor(np.sort(np.random.default_rng(5).integers(0, 50, (2, length, 4)), axis=-1))
    if not result:
        first = main if main in accepted else next(iter(accepted))
        result[first] = draw(2, length, find(config, "hidden_size", "d_model", default=32))
    result = {
        k: v for k, v in result.items() if k in accepted or any(p.kind == p.VAR_KEYWORD for p in accepted.values())
    }
    if variant["labels"] and "labels" in accepted:
        if "input_ids" in result and type(model).__name__.endswith(
            ("LM", "ConditionalGeneration", "LMHeadModel", "CTC", "Generation", "PreTraining")
        ):
            result["labels"] = result.get("decoder_input_ids", ids)
        elif type(model).__name__.endswith("CTC"):
            result["labels"] = integers(3, 20, 2, 4)
        elif type(model).__name__.endswith("ConditionalGeneration"):
            result.pop("decoder_input_ids", None)
            result["labels"] = integers(3, 20, 2, 4)
        elif type(model).__name__.endswith("Classification"):
            result["labels"] = torch.tensor([0, 1])
    return result


BASE = {
    "length": 12, "size": None, "video": False, "pictures": False, "tokens": 0, "samples": 3200, "spectrum": False, "mel_first": True,
    "no_decoder": False, "labels": True,
}  # fmt: skip
VARIANTS = [
    BASE,
    {**BASE, "labels": False},
    {**BASE, "pictures": True},
    {**BASE, "pictures": True, "length": 20, "tokens": 16},
    {**BASE, "pictures": True, "length": 20, "tokens": 4},
    {**BASE, "video": True, "labels": False},
    {**BASE, "mel_first": False, "labels": False},
    {**BASE, "spectrum": True, "labels": False},
    {**BASE, "size": 64, "labels": False},
    {**BASE, "size": 224, "labels": False},
    {**BASE, "samples": 12000, "labels": False},
    {**BASE, "no_decoder": True, "labels": False},
    {**BASE, "length": 64, "labels": False},
]


def tensors_of(value, found, depth=0):
    """Collect the floating-point tensors of an output, in order."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() and value.numel():
            found.append(value)
    elif isinstance(value, dict):
        for v in value.values():
            tensors_of(v, found, depth + 1)
    elif isinstance(value, (list, tuple)) and depth < 4:
        for v in value:
            tensors_of(v, found, depth + 1)
    return found


def fill(model, noise=0.0):
    draw = np.random.default_rng(0)
    other = np.random.default_rng(9)
    with torch.no_grad():
        for _, p in sorted(model.named_parameters()):
            if p.is_floating_point() and p.numel():
                values = draw.normal(size=tuple(p.shape)) * 0.05
                if p.ndim == 1:
                    values = values + 0.5
                if noise:
                    values = values + noise * other.normal(size=values.shape)
                p.copy_(torch.tensor(values.astype(np.float32)).to(p.dtype))
    return model


def figures(array, seed):
    """Return the norm of an array and its projection on a fixed random vector."""
    flat = np.asarray(array, dtype=np.float64).reshape(-1)
    direction = np.random.default_rng(seed).normal(size=flat.size)
    return [float(np.sqrt((flat * flat).sum())), float(flat @ direction / max(1.0, np.sqrt(flat.size)))]


def measure(model, inputs, noise=0.0):
    """Run forward and backward; return the figures of the outputs and of the gradients."""
    fill(model.eval(), noise)
    torch.manual_seed(0)
    result = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    outputs = tensors_of(dict(result.items()) if hasattr(result, "to_tuple") else result, [])[:8]
    if not outputs:
        raise ValueError("no floating-point output")
    record = {"outputs": [], "grads": {}}
    loss = 0.0
    for i, out in enumerate(outputs):
        if not bool(torch.isfinite(out).all()):
            record["outputs"].append([list(out.shape), None, None])
            continue
        record["outputs"].append([list(out.shape), *figures(out.detach().to(torch.float32).numpy(), i)])
        if out.requires_grad:
            weight = torch.tensor(np.random.default_rng(100 + i).normal(size=tuple(out.shape)).astype(np.float32))
            loss = loss + (out.to(torch.float32) * weight).sum() / max(1, out.numel()) ** 0.5
    if isinstance(loss, torch.Tensor):
        loss.backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                record["grads"][name] = figures(p.grad.to(torch.float32).numpy(), zlib.crc32(name.encode()))
    return record


def different(ours, theirs):
    """Return a description of the first difference, or an empty string."""
    if len(ours["outputs"]) != len(theirs["outputs"]):
        return f"{len(ours['outputs'])} outputs instead of {len(theirs['outputs'])}"
    for i, (a, b) in enumerate(zip(ours["outputs"], theirs["outputs"], strict=True)):
        if a[0] != b[0]:
            return f"output {i}: shape {a[0]} instead of {b[0]}"
        if (a[1] is None) != (b[1] is None):
            return f"output {i}: {a[1]} instead of {b[1]}"
        if a[1] is not None and (
            abs(a[1] - b[1]) > TOLERANCE * (b[1] + 1e-3) or abs(a[2] - b[2]) > TOLERANCE * (b[1] + 1e-3)
        ):
            return f"output {i}: norm {a[1]:.6g} and projection {a[2]:.6g} instead of {b[1]:.6g} and {b[2]:.6g}"
    if ours["grads"].keys() != theirs["grads"].keys():
        odd = sorted(ours["grads"].keys() ^ theirs["grads"].keys())
        return f"{len(ours['grads'])} gradients instead of {len(theirs['grads'])}: {odd[:3]}"
    largest = max([b[0] for b in theirs["grads"].values()], default=0.0)
    for name, b in theirs["grads"].items():
        a = ours["grads"][name]
        if not all(np.isfinite(b)):
            if all(np.isfinite(a)):
                return f"gradient of {name}: finite"
            continue
        if (
            abs(a[0] - b[0]) > 2 * TOLERANCE * b[0] + 1e-5 * largest
            or abs(a[1] - b[1]) > 2 * TOLERANCE * b[0] + 1e-5 * largest
        ):
            return f"gradient of {name}: {a} instead of {b}"
    return ""


HEADS = [
    "MODEL_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES",
    "MODEL_FOR_TIME_SERIES_PREDICTION_MAPPING_NAMES",
]


def classes_of(name):
    """Return the names of the base model and of the first model with a head."""
    from transformers.models.auto import modeling_auto

    found = []
    for mapping in HEADS:
        entry = getattr(modeling_auto, mapping, {}).get(name)
        if entry:
            entry = entry[0] if isinstance(entry, (list, tuple)) else entry
            if entry not in found:
                found.append(entry)
    return found[:2]


def one_transformers(name, kind, recipe=None, noise=0.0):
    """Find a recipe of a model class, or run a given one. Returns (recipe, record)."""
    import transformers as hf
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    hf.logging.set_verbosity_error()
    config_class = CONFIG_MAPPING[name]
    tries = [recipe] if recipe else [(s, v) for s in range(len(STEPS)) for v in range(len(VARIANTS))]
    errors, bad, start = [], set(), time.process_time()
    for s, v in tries:
        if s in bad or (not recipe and time.process_time() - start > options.timeout * 0.4):
            continue
        try:
            torch.manual_seed(0)
            config = config_of(config_class, STEPS[s])
            from transformers import AutoModel  # noqa: F401

            model_class = getattr(hf, kind)
            with torch.device("meta"):
                total = sum(p.numel() for p in model_class(copy.deepcopy(config)).parameters()) if not recipe else 0
            if total > 3e7:
                raise ValueError(f"{total} parameters")
            torch.manual_seed(0)
            model = model_class(config)
        except Exception as error:
            if recipe:
                raise
            errors.append(f"{type(error).__name__}: {str(error)[:80]}")
            bad.add(s)
            continue
        try:
            return (s, v), measure(model, inputs_of(model, config, VARIANTS[v]), noise)
        except Exception as error:
            if recipe:
                raise
            errors.append(f"{type(error).__name__}: {str(error)[:80]}")
    raise ValueError(f"no recipe: {errors[-3:]}")


def one_timm(name, kind, recipe=None, noise=0.0):
    import timm

    torch.manual_seed(0)
    size = recipe if recipe else None
    sizes = [size] if size else [64, 96, 128, 224, 256]
    for size in sizes:
        try:
            torch.manual_seed(0)
            try:
                model = timm.create_model(kind, pretrained=False, num_classes=5, img_size=size)
            except TypeError:
                model = timm.create_model(kind, pretrained=False, num_classes=5)
            record = measure(model, draw(2, 3, size, size), noise)
            return size, record
        except Exception:
            if size == sizes[-1]:
                raise


SMALL = "atto|femto|pico|nano|tiny|xxs|xs|small|mini|lite|_s$|_s_|s0|b0|18|t0|m0|base|test"


def timm_names():
    """Return a small model of each module of timm: the smallest of up to five, of which the names suggest small sizes."""
    import re

    import timm

    chosen = {}
    for module in sorted(timm.list_modules()):
        names = timm.list_models(module=module)
        sizes = {}
        for name in sorted(names, key=lambda n: (not re.search(SMALL, n), len(n)))[:5]:
            try:
                with torch.device("meta"):
                    sizes[name] = sum(p.numel() for p in timm.create_model(name).parameters())
            except Exception:
                continue
        chosen[module] = sorted(sizes, key=sizes.get)[:1]
    return chosen


LANGUAGE = (
    "gpt2 llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 opt gptj gpt_neo gpt_neox bloom codegen falcon stablelm "
    "mpt olmo olmo2 cohere starcoder2 mixtral qwen2_moe mamba rwkv granite helium glm ernie4_5 nemotron smollm3 exaone4 dbrx "
    "t5 bart mbart pegasus m2m_100 blenderbot marian mt5 led"
).split()


def one_generate(name, kind, recipe=None, noise=0.0):
    """Generate, save, load, and generate again."""
    import transformers as hf
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    hf.logging.set_verbosity_error()
    steps = [recipe[0]] if recipe else range(len(STEPS))
    for s in steps:
        try:
            torch.manual_seed(0)
            config = config_of(CONFIG_MAPPING[name], STEPS[s])
            model = fill(getattr(hf, kind)(config)).eval()
            break
        except Exception:
            if s == len(STEPS) - 1 or recipe:
                raise
    prompt = integers(3, 99, 2, 6)
    settings = {
        "max_new_tokens": 10,
        "min_new_tokens": 10,
        "pad_token_id": 0,
        "attention_mask": torch.ones_like(prompt),
    }

    def written(model):
        ways = [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 20, "temperature": 1.5}]
        rows = []
        for way in ways:
            torch.manual_seed(1)
            rows.append(model.generate(prompt, **settings, **way).tolist())
        return rows

    first = written(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = getattr(hf, kind).from_pretrained(folder).eval()
        second = written(again)
    if first != second:
        raise ValueError("the loaded model generates another text")
    return (s,), {"text": first}


def child(run, name, kind, recipe, noise, pipe):
    try:
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (options.timeout + int(time.process_time()),) * 2)
        start = time.process_time()
        found, record = run(name, kind, recipe, noise)
        pipe.send({"recipe": found, "record": record, "seconds": round(time.process_time() - start, 2)})
    except BaseException as error:
        frames = [
            f"{Path(f.filename).parent.name}/{Path(f.filename).name}:{f.lineno}"
            for f in traceback.extract_tb(error.__traceback__)
        ]
        pipe.send({"error": f"{type(error).__name__}: {str(error)[:300]}", "where": frames[-4:]})
    os._exit(0)


def run_all(run, jobs, report):
    """Run jobs of (name, kind, recipe, noise), each in a forked process."""
    jobs, active = list(jobs), {}
    while jobs or active:
        while jobs and len(active) < options.workers:
            job = jobs.pop(0)
            ours, theirs = multiprocessing.Pipe(False)
            process = multiprocessing.get_context("fork").Process(target=child, args=(run, *job, theirs))
            process.start()
            theirs.close()
            active[ours] = job, process
        for pipe in multiprocessing.connection.wait(list(active), 1.0):
            job, process = active.pop(pipe)
            try:
                answer = pipe.recv()
            except EOFError:
                answer = {"error": "the process ended (time limit)", "where": []}
            process.join()
            report(job, answer)


def main():
    import multiprocessing.connection  # noqa: F401

    run = {"transformers": one_transformers, "timm": one_timm, "generate": one_generate}[options.zoo]
    if options.zoo == "timm":
        import timm  # noqa: F401
    else:
        import transformers  # noqa: F401
        from transformers.models.auto import modeling_auto
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    # The first pass loads the code that each process needs.
    torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
    if options.zoo != "timm":
        for name, kind in [
            ("gpt2", "GPT2LMHeadModel"),
            ("clip", "CLIPModel"),
            ("wav2vec2", "Wav2Vec2Model"),
            ("t5", "T5Model"),
        ]:
            one_transformers(name, kind, (0, 1) if name != "clip" else (0, 2))
    if options.library == "torch" and not options.steady:
        known = json.loads(options.file.read_text()) if options.file.exists() else {}
        if options.zoo == "timm":
            jobs = [(module, kind) for module, kinds in timm_names().items() for kind in kinds]
        elif options.zoo == "generate":
            causal, seq = (
                modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
                modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
            )
            jobs = [(name, seq.get(name) or causal.get(name)) for name in LANGUAGE if name in seq or name in causal]
        else:
            jobs = [(name, kind) for name in sorted(CONFIG_MAPPING.keys()) for kind in classes_of(name)]
        jobs = [(*job, None, 0.0) for job in jobs if not options.names or job[0] in options.names]
        jobs = [job for job in jobs if f"{job[0]}/{job[1]}" not in known]

        def report(job, answer):
            known[f"{job[0]}/{job[1]}"] = answer
            print(*job[:2], answer.get("recipe"), answer.get("error", ""), flush=True)
            if len(known) % 20 == 0:
                options.file.write_text(json.dumps(known))

        run_all(run, jobs, report)
        options.file.write_text(json.dumps(known))
        print(sum("record" in v for v in known.values()), "recipes of", len(known))
        return
    known = json.loads(options.file.read_text())
    good = {
        k: v
        for k, v in known.items()
        if "record" in v and (not options.names or k.split("/")[0] in options.names or k in options.names)
    }
    failed, seconds = {}, [0.0, 0.0]

    def report(job, answer):
        key = f"{job[0]}/{job[1]}"
        theirs = good[key]["record"]
        if "record" in answer:
            same = answer["record"] == theirs if options.zoo == "generate" else not different(answer["record"], theirs)
            problem = (
                "" if same else (different(answer["record"], theirs) if options.zoo != "generate" else "another text")
            )
            seconds[0] += answer["seconds"]
            seconds[1] += good[key]["seconds"]
        else:
            problem = f"{answer['error']} {answer['where']}"
        if problem:
            failed[key] = problem
            print("FAIL", key, problem, flush=True)

    run_all(run, [(*k.split("/"), v["recipe"], 1e-6 if options.steady else 0.0) for k, v in good.items()], report)
    if options.steady:
        for key in failed:
            known[key] = {"error": "unsteady"}
        options.file.write_text(json.dumps(known))
    types = {k.split("/")[0] for k in good}
    broken = {k.split("/")[0] for k in failed}
    print(
        f"{len(good) - len(failed)} of {len(good)} parts pass; {len(types) - len(broken)} of {len(types)} model types"
    )
    print(f"processor time: {seconds[0]:.1f} s here, {seconds[1]:.1f} s when the recipes were found with PyTorch")


if __name__ == "__main__":
    main()
