"""Classify the members of Zachary's karate club with a graph network and two labels. Source: Kipf and Welling, 2016.

python -m examples.graph_convolution --save club.png
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.pictures import panels, save_figure
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script
from mytorch.nn import functional as F

# Members who meet outside the club, and members who followed the instructor (0) instead of the president (33).
# Source: Zachary, 1977.
FRIENDS = {
    0: "1 2 3 4 5 6 7 8 10 11 12 13 17 19 21 31", 1: "2 3 7 13 17 19 21 30", 2: "3 7 8 9 13 27 28 32", 3: "7 12 13",
    4: "6 10", 5: "6 10 16", 6: "16", 8: "30 32 33", 9: "33", 13: "33", 14: "32 33", 15: "32 33", 18: "32 33",
    19: "33", 20: "32 33", 22: "32 33", 23: "25 27 29 32 33", 24: "25 27 31", 25: "31", 26: "29 33", 27: "33",
    28: "31 33", 29: "32 33", 30: "32 33", 31: "32 33", 32: "33",
}  # fmt: skip
INSTRUCTORS = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 17, 19, 21}


class GraphConvolution(nn.Module):
    """Applies a linear layer to each node and adds the results of its neighbors, weighted by `adjacency`."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x, adjacency):
        return adjacency @ self.linear(x)


class GCN(nn.Module):
    """Stacks two graph convolutions, so a node receives information from nodes at distance 2."""

    def __init__(self, nodes, width=16):
        super().__init__()
        self.first, self.second = GraphConvolution(nodes, width), GraphConvolution(width, 2)

    def forward(self, x, adjacency):
        return self.second(self.first(x, adjacency).relu(), adjacency)


def karate_club():
    """Returns the edges, the labels (34,) and the normalized adjacency matrix D^-1/2 (A + I) D^-1/2."""
    edges = [(a, int(b)) for a, others in FRIENDS.items() for b in others.split()]
    adjacency = mytorch.eye(34)
    for a, b in edges:
        adjacency[a, b] = adjacency[b, a] = 1.0
    scale = adjacency.sum(1).rsqrt()  # D^-1/2
    labels = mytorch.tensor([int(i not in INSTRUCTORS) for i in range(34)])
    return edges, labels, scale[:, None] * adjacency * scale


def layout(edges, count, steps=300):
    """Computes positions (count, 2) for a drawing: edges attract their ends, and all nodes repel each other."""
    positions = mytorch.randn(count, 2, requires_grad=True)
    optimizer = mytorch.optim.Adam([positions], lr=0.1)
    ends = mytorch.tensor(edges)
    for _ in range(steps):
        attraction = (positions[ends[:, 0]] - positions[ends[:, 1]]).square().sum()
        distances = (positions[:, None] - positions[None]).square().sum(-1)
        loss = attraction + (1 / (distances + 0.05)).sum() * 0.5
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return positions.detach().numpy()


def save_club(path, edges, labels, known, frames):
    """Draws the club at several (step, probabilities). The fill shows the prediction, the edge color shows the label."""
    positions = layout(edges, len(labels))
    figure, axes = panels(len(frames), width=3.4, height=3.6)
    for axis, (step, probabilities) in zip(axes, frames, strict=True):
        for a, b in edges:
            axis.plot(*positions[[a, b]].T, color="silver", linewidth=0.6, zorder=1)
        colors = ["firebrick" if label else "navy" for label in labels.tolist()]
        axis.scatter(
            *positions.T,
            c=probabilities,
            cmap="coolwarm",
            vmin=0,
            vmax=1,
            edgecolors=colors,
            linewidths=2,
            s=90,
            zorder=2,
        )
        for i in known:
            axis.annotate(
                "labeled", positions[i], (0, 8), textcoords="offset points", ha="center", fontsize=8, zorder=3
            )
        axis.set(title=f"step {step}", xticks=[], yticks=[])
        axis.axis("off")
    save_figure(figure, path)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=count, default=200, help="number of training steps")
    parser.add_argument("--lr", type=positive, default=0.02, help="learning rate")
    parser.add_argument("--save", type=new_file, metavar="FILE", help="image file for the members (needs matplotlib)")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    edges, labels, adjacency = karate_club()
    features, known = mytorch.eye(34), mytorch.tensor([0, 33])  # the two members with known labels
    model = GCN(34)
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    frames, moments = [], (1, args.steps // 10, args.steps)
    for step in range(1, args.steps + 1):
        logits = model(features, adjacency)
        if step in moments:
            frames.append((step, logits.detach().softmax(1)[:, 1].tolist()))
        loss = F.cross_entropy(logits[known], labels[known])  # only two of the 34 labels
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(args.steps // 5, 1) == 0:
            print(f"step {step}  loss {loss.item():.4f}")

    answers = model(features, adjacency).argmax(1)
    if args.save:
        save_club(args.save, edges, labels, known.tolist(), frames)
    wrong = [i for i in range(34) if answers[i] != labels[i]]
    print(f"accuracy {1 - len(wrong) / 34:.2f} on all 34 members, with 2 known labels; wrong: {wrong or 'none'}")


if __name__ == "__main__":
    run_script(main)
