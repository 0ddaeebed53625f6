import json

import numpy as np
import pytest

import mytorch
from mytorch.models import GPT2, Llama, lora

TARGETS = {"llama": ["q_proj", "v_proj", "layers.1.mlp.down_proj"], "gpt2": ["c_attn", "mlp.c_proj"]}


def base(kind="llama"):
    mytorch.manual_seed(0)
    shape = {"vocab_size": 31, "context_length": 16, "num_layers": 2, "num_heads": 2, "embed_dim": 16}
    return GPT2(**shape, activation="gelu_tanh") if kind == "gpt2" else Llama(**shape, num_kv_heads=1, hidden_dim=24)


def trained(kind="llama", **options):
    model = lora.inject(base(kind), TARGETS[kind], rank=3, **options)
    x = mytorch.randint(0, 31, (4, 16))
    optimizer = mytorch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    losses = []
    for _ in range(20):
        loss = model(x[:, :-1], x[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.05
    return model.eval()


@pytest.mark.parametrize("kind", TARGETS)
def test_training_moves_the_small_matrices_alone_and_merging_changes_no_logit(kind):
    model, fresh = trained(kind, dropout_p=0.1), base(kind)
    frozen = {n.replace(".base.", "."): p for n, p in model.named_parameters() if not p.requires_grad}
    assert all((frozen[name] == p).all() for name, p in fresh.named_parameters())
    x = mytorch.randint(0, 31, (2, 9))
    before = model(x).detach().numpy()
    assert abs(before - fresh.eval()(x).detach().numpy()).max() > 0.01
    lora.merge(model)
    np.testing.assert_allclose(model(x).detach().numpy(), before, rtol=0, atol=1e-5)
    assert model.state_dict().keys() == fresh.state_dict().keys()
    assert all(p.requires_grad for p in model.parameters())


def test_an_injected_layer_is_the_formula(rng):
    layer = mytorch.nn.Linear(5, 4)
    model = lora.inject(mytorch.nn.Sequential(layer), ["0"], rank=2, alpha=3)
    x = rng.standard_normal((7, 5)).astype("float32")
    assert (model(mytorch.from_numpy(x)) == layer(mytorch.from_numpy(x))).all(), "nothing changes at first"
    b = rng.standard_normal((4, 2)).astype("float32")
    model[0].lora_B.data = mytorch.from_numpy(b).data
    expected = (
        x @ (layer.weight.detach().numpy() + 1.5 * b @ model[0].lora_A.detach().numpy()).T + layer.bias.detach().numpy()
    )
    np.testing.assert_allclose(model(mytorch.from_numpy(x)).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_head_that_is_injected_is_part_of_the_loss():
    model = lora.inject(base(), ["lm_head"], rank=2)
    x = mytorch.randint(0, 31, (2, 9))
    model(x, x).backward()
    assert model.lm_head.lora_B.grad.abs().max() > 0
    with mytorch.no_grad():
        model.lm_head.lora_B.add_(0.5)
    assert model(x, x).item() == pytest.approx(model.loss(model(x), x).item(), rel=1e-5)


def test_an_adapter_survives_its_file(tmp_path):
    model, x = trained(), mytorch.randint(0, 31, (2, 9))
    lora.save_adapter(model, tmp_path / "a", base_model="mine")
    again = lora.load_adapter(base(), tmp_path / "a").eval()
    assert (again(x) == model(x)).all()
    with pytest.raises(ValueError, match="already has LoRA layers"):
        lora.load_adapter(again, tmp_path / "a")
    with pytest.raises(ValueError, match="no Linear has the name model"):
        lora.load_adapter(base("gpt2"), tmp_path / "a")
    config = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps({**config, "peft_type": "IA3"}))
    with pytest.raises(ValueError, match="expected a plain LoRA adapter"):
        lora.load_adapter(base(), tmp_path / "a")


def test_invalid_injections_are_rejected():
    with pytest.raises(ValueError, match="no Linear has the name w_proj"):
        lora.inject(base(), ["q_proj", "w_proj"])
    with pytest.raises(ValueError, match="got 0"):
        lora.inject(base(), ["q_proj"], rank=0)
    with pytest.raises(ValueError, match="has no LoRA layers"):
        lora.save_adapter(base(), "nowhere")


@pytest.mark.parametrize("kind", TARGETS)
def test_peft_exchanges_adapters(torch, tmp_path, kind):
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    model = trained(kind)
    base(kind).save_pretrained(tmp_path / "base")
    lora.save_adapter(model, tmp_path / "adapter", base_model=str(tmp_path / "base"))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    x = np.random.default_rng(0).integers(0, 31, (2, 9))
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x)).logits.numpy()
    np.testing.assert_allclose(model(mytorch.from_numpy(x)).detach().numpy(), expected, rtol=0, atol=1e-4)
    theirs.save_pretrained(tmp_path / "again")
    again = lora.load_adapter(base(kind), tmp_path / "again").eval()
    assert (again(mytorch.from_numpy(x)) == model(mytorch.from_numpy(x))).all()
