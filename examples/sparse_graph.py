"""Classify the nodes of a synthetic citation graph with a sparse adjacency matrix. Source: Kipf and Welling, 2016 (pygcn).

python -m examples.sparse_graph --nodes 5000
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, positive, run_script
from mytorch.nn import functional as F


class GraphConvolution(nn.Module):
    """Multiplies the features of each node by a weight, and sums the results over the neighbors of the node."""

    def __init__(self, in_features, out_features):
        super().__init__()
        bound = 1 / math.sqrt(out_features)
        self.weight = nn.Parameter(mytorch.empty(in_features, out_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(mytorch.empty(out_features).uniform_(-bound, bound))

    def forward(self, x, adjacency):
        return mytorch.spmm(adjacency, x @ self.weight) + self.bias


class GCN(nn.Module):
    """Two graph convolutions with dropout."""

    def __init__(self, features, width, classes, dropout=0.5):
        super().__init__()
        self.first, self.second = GraphConvolution(features, width), GraphConvolution(width, classes)
        self.dropout = dropout

    def forward(self, x, adjacency):
        x = F.dropout(self.first(x, adjacency).relu(), self.dropout, training=self.training)
        return F.log_softmax(self.second(x, adjacency), dim=1)


def citations(nodes, classes=7, words=100, degree=4):
    """Returns features, labels and the row-normalized adjacency matrix of a graph. Papers mostly cite papers of their class."""
    labels = mytorch.randint(0, classes, (nodes,))
    order = labels.argsort()  # papers of one class are neighbors in this order
    source = mytorch.arange(nodes).repeat(degree)
    step = mytorch.randint(1, max(2, nodes // (2 * classes)), (nodes * degree,))
    target = order[(order.argsort()[source] + step) % nodes]
    both = mytorch.stack(
        [mytorch.cat([source, target, mytorch.arange(nodes)]), mytorch.cat([target, source, mytorch.arange(nodes)])]
    )
    links = mytorch.sparse_coo_tensor(both, mytorch.ones(both.shape[1]), (nodes, nodes)).coalesce()
    rows = mytorch.sparse.sum(links, 1).to_dense()
    adjacency = mytorch.sparse_coo_tensor(
        links.indices(), links.values() / rows[links.indices()[0]], links.shape
    ).coalesce()
    topics = mytorch.rand(classes, words)[labels]
    return (mytorch.rand(nodes, words) < 0.3 * topics).float(), labels, adjacency


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=count, default=2000, help="number of papers")
    parser.add_argument("--epochs", type=count, default=60, help="number of training steps")
    parser.add_argument("--lr", type=positive, default=0.01, help="learning rate")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    features, labels, adjacency = citations(args.nodes)
    model = GCN(features.shape[1], 16, int(labels.max()) + 1)
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    known, others = slice(0, args.nodes // 10), slice(args.nodes // 10, None)
    for epoch in range(1, args.epochs + 1):
        model.train()
        loss = F.nll_loss(model(features, adjacency)[known], labels[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % max(args.epochs // 5, 1) == 0:
            print(f"epoch {epoch}  loss {loss.item():.4f}")
    model.eval()
    correct = model(features, adjacency)[others].argmax(1) == labels[others]
    print(f"accuracy {correct.float().mean().item():.2f} on the other nodes, with 10 % known labels")


if __name__ == "__main__":
    run_script(main)
