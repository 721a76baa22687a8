"""A bidirectional LSTM for texts, whose features are the mean of its states."""

from torch import Tensor, nn

from matrixdp_experiments.models.feature_network import FeatureNetwork

__all__ = ["MeanStates", "bilstm"]


class MeanStates(nn.Module):
    """From the numbers of words to the mean state of a bidirectional LSTM.

    A state is a tanh times a gate, so that every feature is between -1 and 1.

    Parameters
    ----------
    words : int
        How many numbers there are; 0 stands for no word.
    width : int
        Of the embedding.
    units : int
        Of the LSTM, each way.

    Examples
    --------
    >>> import torch
    >>> body = MeanStates(words=50, width=8, units=3)
    >>> body(torch.tensor([[4, 7, 0, 0], [0, 0, 0, 0]])).shape
    torch.Size([2, 6])
    """

    def __init__(self, words: int, width: int, units: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.lstm = nn.LSTM(width, units, batch_first=True, bidirectional=True)

    def forward(self, words: Tensor) -> Tensor:
        """Return one row of features for each text, whose words stand before the padding."""
        # Sorted lengths and packing would save little: most texts fill the fixed length.
        states, _ = self.lstm(self.embedding(words))
        there = (words != 0).unsqueeze(2)
        count = there.sum(1).clamp(min=1)  # a text without a word has features of zero
        mean: Tensor = (states * there).sum(1) / count
        return mean


def bilstm(words: int = 20_000) -> FeatureNetwork:
    """Return the network for IMDB: 75 units each way, 150 features, a linear head."""
    return FeatureNetwork(MeanStates(words, width=100, units=75), nn.Linear(150, 2))
