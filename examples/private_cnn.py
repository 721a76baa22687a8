# %% [markdown]
# # A private convolutional network
#
# The model, the optimiser and the loop stay as they are in PyTorch. What is new is a plan, which
# finds the noise for a promise, and a trainer, which clips what each record contributes and adds
# the noise.
#
# As a script: `python examples/private_cnn.py`. It needs the extras `train` and `sklearn`, and
# takes some seconds on a processor.

# %% [markdown]
# ## The data
#
# 1,797 handwritten digits of 8 by 8 pixels. One record is one image with its digit. Every sixth is
# kept for testing.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import matrixdp as mdp

digits = load_digits()
images = torch.tensor(digits.data / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
labels = torch.tensor(digits.target)
test = torch.arange(len(images)) % 6 == 0
dataset = torch.utils.data.TensorDataset(images[~test], labels[~test])

# %% [markdown]
# ## A model, and the loss of each record
#
# The loss function returns one loss for each record, not their mean: that is how the trainer knows
# what a record is.

# %%
model = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)


def losses(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of each record."""
    return F.cross_entropy(model(inputs), targets, reduction="none")


# %% [markdown]
# ## The plan
#
# It is fixed before anything is spent, and says how much noise every step gets.

# %%
plan = mdp.training.TrainingPlan(
    records=len(dataset), lot_size=300, epochs=12, clip_norm=1.0, epsilon=4.0, delta=1e-4
)
training = mdp.training.PrivateTraining(model, losses, optimizer, plan)

# %% [markdown]
# ## The loop
#
# The test images are public, so looking at them costs nothing.

# %%
accuracies = []
for lot in training.lots(dataset):
    training.step(lot, batch_size=256)
    with torch.no_grad():
        guesses = model(images[test]).argmax(1)
    accuracies.append(float((guesses == labels[test]).float().mean()))
print(training.guarantee)
print(f"test accuracy: {accuracies[-1]:.3f}")

# %% [markdown]
# ## What it has learnt
#
# The whole plan is spent, however early the network was good enough. On the right are test images
# with the network's answers; wrong ones are red.

# %%
figure = plt.figure(figsize=(10.0, 3.8), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[3, 2])
axes = left.subplots()
axes.plot(range(1, len(accuracies) + 1), accuracies, color="C3")
axes.axhline(0.1, linestyle=":", color="black")
axes.text(60, 0.12, "guessing", ha="right", fontsize=9)
axes.set(xlabel="steps", ylabel="test accuracy", ylim=(0.0, 1.0))
axes.set_title(f"epsilon {plan.epsilon:g}, delta {plan.delta:g}", fontsize=10)
shown = right.subplots(4, 8).flat
for cell, image, guess, label in zip(shown, images[test], guesses, labels[test], strict=False):
    cell.imshow(image[0].numpy(), cmap="gray_r")
    cell.set(xticks=[], yticks=[])
    cell.set_title(f"{guess}", fontsize=10, color="black" if guess == label else "red")
figure.savefig("private_cnn.png", dpi=120)
print("wrote private_cnn.png")
