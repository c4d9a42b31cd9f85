"""Writes llama.json: a tiny Llama in plain PyTorch, for src/model/tests.rs to compare with.

    python -m venv venv && venv/bin/pip install torch
    venv/bin/python tests/reference/make_llama.py > tests/reference/llama.json

The numbers are stored, not the library. Everything is f32 on the CPU, one thread. Initial
parameters and tokens are small rational numbers that both sides compute exactly, so that only
results need to be stored: the logits, the loss, the gradient and, after five steps of AdamW (decay
on matrices only, global clipping), the parameters.
"""

import json
import sys

import torch
from torch.nn import functional as F

VOCAB, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH, BATCH = 23, 12, 20, 2, 3, 1, 7, 3
HEAD = WIDTH // HEADS
ROPE_BASE, EPSILON = 10_000.0, 1e-5
RATE, BETAS, ADAM_EPSILON, DECAY, CLIP, STEPS = 1e-2, (0.9, 0.95), 1e-8, 0.1, 0.5, 5


def shapes():
    """Names and shapes in the order of config::Layout."""
    yield "model.embed_tokens.weight", (VOCAB, WIDTH)
    for layer in range(LAYERS):
        part = f"model.layers.{layer}."
        yield part + "input_layernorm.weight", (WIDTH,)
        yield part + "self_attn.q_proj.weight", (WIDTH, WIDTH)
        yield part + "self_attn.k_proj.weight", (KV_HEADS * HEAD, WIDTH)
        yield part + "self_attn.v_proj.weight", (KV_HEADS * HEAD, WIDTH)
        yield part + "self_attn.o_proj.weight", (WIDTH, WIDTH)
        yield part + "post_attention_layernorm.weight", (WIDTH,)
        yield part + "mlp.gate_proj.weight", (INNER, WIDTH)
        yield part + "mlp.up_proj.weight", (INNER, WIDTH)
        yield part + "mlp.down_proj.weight", (WIDTH, INNER)
    yield "model.norm.weight", (WIDTH,)
    yield "lm_head.weight", (VOCAB, WIDTH)


def initial():
    """Element i of tensor t: a multiple of 1/64 in about -0.5..0.5; norms are moved by 1."""
    parameters = {}
    for t, (name, shape) in enumerate(shapes()):
        count = torch.Size(shape).numel()
        values = [((i * 37 + t * 11 + i * i % 13) % 61 - 30) / 64 for i in range(count)]
        if len(shape) == 1:
            values = [1 + value / 4 for value in values]
        parameters[name] = torch.tensor(values).reshape(shape).requires_grad_()
    return parameters


def windows(step):
    """Tokens of a step's batch: BATCH sequences of LENGTH + 1."""
    count = BATCH * (LENGTH + 1)
    tokens = [(i * 5 + i * i % 7 + step * 3) % VOCAB for i in range(count)]
    return torch.tensor(tokens).reshape(BATCH, LENGTH + 1)


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * weight


def rotate(x):
    """x (batch, heads, length, head): half rotation, as in transformers."""
    frequencies = 1.0 / ROPE_BASE ** (torch.arange(0, HEAD, 2).float() / HEAD)
    angles = torch.outer(torch.arange(x.shape[2]).float(), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    low, high = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-high, low), dim=-1) * angles.sin()


def attend(p, part, x):
    batch, length, _ = x.shape
    split = lambda y, heads: y.view(batch, length, heads, HEAD).transpose(1, 2)
    q = rotate(split(F.linear(x, p[part + "q_proj.weight"]), HEADS))
    k = rotate(split(F.linear(x, p[part + "k_proj.weight"]), KV_HEADS))
    v = split(F.linear(x, p[part + "v_proj.weight"]), KV_HEADS)
    k, v = (y.repeat_interleave(HEADS // KV_HEADS, dim=1) for y in (k, v))
    mask = torch.full((length, length), float("-inf")).triu(1)
    weights = torch.softmax(q @ k.transpose(2, 3) / HEAD**0.5 + mask, dim=-1)
    mixed = (weights @ v).transpose(1, 2).reshape(batch, length, WIDTH)
    return F.linear(mixed, p[part + "o_proj.weight"])


def forward(p, tokens):
    x = p["model.embed_tokens.weight"][tokens]
    for layer in range(LAYERS):
        part = f"model.layers.{layer}."
        x = x + attend(p, part + "self_attn.", norm(x, p[part + "input_layernorm.weight"]))
        y = norm(x, p[part + "post_attention_layernorm.weight"])
        gate = F.silu(F.linear(y, p[part + "mlp.gate_proj.weight"]))
        x = x + F.linear(gate * F.linear(y, p[part + "mlp.up_proj.weight"]), p[part + "mlp.down_proj.weight"])
    return F.linear(norm(x, p["model.norm.weight"]), p["lm_head.weight"])


def loss_of(p, tokens):
    logits = forward(p, tokens[:, :-1])
    return logits, F.cross_entropy(logits.reshape(-1, VOCAB), tokens[:, 1:].reshape(-1))


def flat(tensors):
    return [float(f"{x:.7g}") for tensor in tensors for x in tensor.detach().flatten().tolist()]


def main():
    torch.set_num_threads(1)
    p = initial()
    matrices = [x for x in p.values() if x.dim() > 1]
    vectors = [x for x in p.values() if x.dim() == 1]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=ADAM_EPSILON)
    out = {"torch": torch.__version__, "losses": [], "norms": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        logits, loss = loss_of(p, windows(step))
        loss.backward()
        if step == 0:
            out["logits"] = flat([logits])
            out["gradient"] = flat([x.grad for x in p.values()])
        out["losses"].append(loss.item())
        out["norms"].append(torch.nn.utils.clip_grad_norm_(p.values(), CLIP).item())
        optimizer.step()
    out["after"] = flat(p.values())
    json.dump(out, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
