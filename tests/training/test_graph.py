"""Nodes as examples: neighbourhoods against a pass over the whole graph."""

import pytest

torch = pytest.importorskip("torch", reason="private training needs the extra `train`")

from torch import Tensor, nn  # noqa: E402

from matrixdp.errors import InvalidParameterError, ShapeError  # noqa: E402
from matrixdp.training import GraphConvolution, Neighbourhoods, NodeRows  # noqa: E402
from matrixdp.training.layers.tracing import Tracer  # noqa: E402
from matrixdp.training.lots.clipping import clipped_sum  # noqa: E402


def random_graph(nodes: int) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    edges = (torch.rand(nodes, nodes, generator=generator) < 0.2).float()
    joined = ((edges + edges.T + torch.eye(nodes)) > 0).float()
    degrees = joined.sum(1)
    return joined / (degrees[:, None] * degrees).sqrt()


class MixedGCN(nn.Module):
    """A dense layer on every row, then a graph convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(6, 4)
        self.convolution = GraphConvolution(4, 3)

    def forward(self, features: Tensor, weights: Tensor) -> Tensor:
        return self.convolution(torch.tanh(self.dense(features)), weights)

    def on_whole_graph(self, features: Tensor, propagation: Tensor) -> Tensor:
        return self.convolution.linear(propagation @ torch.tanh(self.dense(features)))

    def on_rows(self, near: Neighbourhoods, features: Tensor, nodes: Tensor) -> Tensor:
        return self(*near.rows(features, nodes))


class DeepGCN(nn.Module):
    """Three graph convolutions, so that a loss depends on nodes three edges away."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            [GraphConvolution(6, 5), GraphConvolution(5, 4), GraphConvolution(4, 3)]
        )

    def on_whole_graph(self, features: Tensor, propagation: Tensor) -> Tensor:
        for layer in self.convolutions:
            assert isinstance(layer, GraphConvolution)
            features = torch.tanh(layer.linear(propagation @ features))
        return features

    def on_rows(self, near: Neighbourhoods, features: Tensor, nodes: Tensor) -> Tensor:
        outer = near.neighbours(nodes)
        middle = near.neighbours(outer.nodes)
        rows, inner = near.rows(features, middle.nodes)
        weights = (inner, middle.weights, outer.weights)
        for layer, part in zip(self.convolutions, weights, strict=True):
            rows = torch.tanh(layer(rows, part))
        return rows


GCN = MixedGCN | DeepGCN


@pytest.fixture(params=[MixedGCN, DeepGCN])
def graph(request: pytest.FixtureRequest) -> tuple[GCN, Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    propagation, features = random_graph(12), torch.randn(12, 6)
    return request.param(), propagation, features, torch.tensor([7, 0, 3, 11, 4])


def test_neighbourhoods_give_what_the_whole_graph_gives(
    graph: tuple[GCN, Tensor, Tensor, Tensor],
) -> None:
    model, propagation, features, nodes = graph
    for given in (propagation, propagation.to_sparse_coo()):
        found = model.on_rows(Neighbourhoods(given), features, nodes)
        whole = model.on_whole_graph(features, propagation)[nodes]
        torch.testing.assert_close(found, whole)


def test_clipped_sums_of_nodes(graph: tuple[GCN, Tensor, Tensor, Tensor]) -> None:
    model, propagation, features, nodes = graph
    parameters = list(model.parameters())
    expected = [torch.zeros_like(part) for part in parameters]
    norms = []
    for node in nodes:
        # One backward pass over the whole graph for each node: neighbours are shared here.
        loss = model.on_whole_graph(features, propagation)[node].square().sum()
        gradients = torch.autograd.grad(loss, parameters)
        norms.append(torch.stack([part.square().sum() for part in gradients]).sum().sqrt())
        factor = min(1.0, 0.4 / float(norms[-1]))
        expected = [total + factor * part for total, part in zip(expected, gradients, strict=True)]
    near, tracer = Neighbourhoods(propagation), Tracer(model, parameters)
    with tracer.on():
        losses = model.on_rows(near, features, nodes).square().sum(1)
        uses = tracer.uses(losses, len(nodes))
    found = clipped_sum(uses, dict.fromkeys(parameters, 0), [0.4])
    torch.testing.assert_close(found.norms[0].float(), torch.stack(norms), rtol=1e-3, atol=1e-6)
    for parameter, total in zip(parameters, expected, strict=True):
        torch.testing.assert_close(found.sums[parameter], total, rtol=1e-3, atol=1e-5)


def test_padding_does_not_enter(graph: tuple[GCN, Tensor, Tensor, Tensor]) -> None:
    _, propagation, features, nodes = graph
    rows = Neighbourhoods(propagation).rows(features, nodes)
    assert isinstance(rows, NodeRows)
    assert bool((rows.features[rows.weights == 0] == 0).all())


@pytest.mark.parametrize("model", [MixedGCN(), DeepGCN()], ids=type)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_features_of_strangers_do_not_enter(model: GCN, wrong: float) -> None:
    # Nodes 0 and 1 are not connected to the others, and padding points at one of them.
    near = Neighbourhoods(
        torch.block_diag(torch.full((2, 2), 0.5), torch.eye(2), torch.full((3, 3), 0.3))
    )
    features, nodes = torch.ones(7, 6), torch.tensor([2, 4])
    expected = model.on_rows(near, features, nodes)
    features[:2] = wrong
    torch.testing.assert_close(model.on_rows(near, features, nodes), expected)


def test_no_nodes(graph: tuple[GCN, Tensor, Tensor, Tensor]) -> None:
    model, propagation, features, nodes = graph
    assert model.on_rows(Neighbourhoods(propagation), features, nodes[:0]).shape == (0, 3)


def test_bad_graphs() -> None:
    for given, kind in (([[1.0]], "list"), (None, "NoneType")):
        with pytest.raises(InvalidParameterError, match=f"propagation is a {kind}"):
            Neighbourhoods(given)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="no nodes"):
        Neighbourhoods(torch.empty(0, 0))
    with pytest.raises(InvalidParameterError, match=r"holds torch.int64"):
        Neighbourhoods(torch.ones(2, 2, dtype=torch.int64))
    with pytest.raises(ShapeError, match="features has 2 rows"):
        Neighbourhoods(torch.eye(3)).rows(torch.ones(2, 4), torch.tensor([0]))
    with pytest.raises(ShapeError, match="propagation has shape"):
        Neighbourhoods(torch.ones(2, 3))
    with pytest.raises(InvalidParameterError, match="without any weight"):
        Neighbourhoods(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    with pytest.raises(InvalidParameterError, match="NaN"):
        Neighbourhoods(torch.tensor([[1.0, float("nan")], [0.0, 1.0]]))
