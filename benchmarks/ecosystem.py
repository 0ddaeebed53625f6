"""Print losses of Hugging Face models with equal weights, computed with mytorch or with PyTorch.

    python benchmarks/ecosystem.py mytorch [case …]
    python benchmarks/ecosystem.py torch [case …]

With mytorch, PyTorch need not be installed.
"""

import sys
import time
from pathlib import Path

library, *selected = sys.argv[1:] or ["mytorch"]
if library == "mytorch":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import mytorch

    mytorch.install_as_torch()

import numpy as np  # noqa: E402
import torch  # noqa: E402

start = time.perf_counter()
import transformers as hf  # noqa: E402

print(f"import transformers: {time.perf_counter() - start:.2f} s")
draw = np.random.default_rng(1)
ids = torch.tensor(draw.integers(3, 90, (2, 12)))
pictures = torch.tensor(draw.normal(size=(2, 3, 32, 32)).astype(np.float32))
sounds = torch.tensor(draw.normal(size=(2, 16, 40)).astype(np.float32))
text = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 100}
heads = {**text, "num_key_value_heads": 2, "max_position_embeddings": 64}
vision = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
whisper = {
    "vocab_size": 100, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_mel_bins": 16, "max_source_positions": 20,
    "max_target_positions": 30, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
words = {"labels": ids, "input_ids": ids}
CASES = {
    "gpt2": (hf.GPT2LMHeadModel, hf.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=64), words),
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**heads), words),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig(**heads, sliding_window=8), words),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config(**heads), words),
    "bert": (hf.BertForMaskedLM, hf.BertConfig(**text, max_position_embeddings=64), words),
    "t5": (
        hf.T5ForConditionalGeneration,
        hf.T5Config(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=100, decoder_start_token_id=0),
        words,
    ),
    "vit": (
        hf.ViTForImageClassification,
        hf.ViTConfig(**vision, num_labels=5),
        {"pixel_values": pictures, "labels": torch.tensor([1, 2])},
    ),
    "clip": (
        hf.CLIPModel,
        hf.CLIPConfig(text_config={**text, "eos_token_id": 2}, vision_config=vision, projection_dim=16),
        {"input_ids": ids, "pixel_values": pictures, "return_loss": True},
    ),
    "whisper": (
        hf.WhisperForConditionalGeneration,
        hf.WhisperConfig(**whisper),
        {"input_features": sounds, "labels": ids},
    ),
}

for name, (kind, config, inputs) in CASES.items():
    if selected and name not in selected:
        continue
    model, weights = kind(config).eval(), np.random.default_rng(0)
    with torch.no_grad():
        for _, p in sorted(model.named_parameters()):
            p.copy_(torch.tensor((weights.normal(size=tuple(p.shape)) * 0.05).astype(np.float32)))
    loss = model(**inputs).loss
    loss.backward()
    grads = sum(float(p.grad.abs().sum()) for p in model.parameters() if p.grad is not None)
    print(f"{name}: loss {loss.item():.6f}, gradients {grads:.4f}")
