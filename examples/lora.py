# %% [markdown]
# # A transformer adapted privately by LoRA
#
# A transformer that has seen public images learns private ones by adapters: small matrices beside
# its weights, which alone are trained and take noise.
#
# As a script: `python examples/lora.py`. It needs the extras `train` and `sklearn`, transformers
# and peft, and takes some seconds on a processor.

# %% [markdown]
# ## The data
#
# 1,797 handwritten digits of 8 by 8 pixels. Those from 0 to 4 are public, those from 5 to 9 are
# private. Every fourth is kept for testing.

# %%
import warnings

import matplotlib.pyplot as plt
import peft
import torch
import transformers
from sklearn.datasets import load_digits
from torch.nn import functional as F

import matrixdp as mdp

digits = load_digits()
images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32)[:, None]
labels = torch.tensor(digits.target)
public, test = labels < 5, torch.arange(len(labels)) % 4 == 0
private = ~public & ~test
classes = labels % 5

# %% [markdown]
# ## A transformer, trained on public images as in any training

# %%
config = transformers.ViTConfig(
    image_size=8,
    patch_size=2,
    num_channels=1,
    num_labels=5,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
model = transformers.ViTForImageClassification(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(150):
    chosen = torch.nonzero(public)[torch.randint(int(public.sum()), (128,)), 0]
    optimizer.zero_grad()
    F.cross_entropy(model(pixel_values=images[chosen]).logits, classes[chosen]).backward()
    optimizer.step()

# %% [markdown]
# ## Adapters, and losses from logits
#
# The private images train the adapters and a new classifier; all other weights are frozen.

# %%
# peft asks transformers for what is to be called otherwise in its next version.
warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
adapters = peft.LoraConfig(
    r=4, target_modules=["q_proj", "v_proj", "fc1", "fc2"], modules_to_save=["classifier"]
)
model = peft.get_peft_model(model, adapters)
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
print(sum(map(torch.numel, trained)), "of", sum(map(torch.numel, model.parameters())), "weights")


def losses(pixels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of each record."""
    return F.cross_entropy(model(pixel_values=pixels).logits, targets, reduction="none")


# %% [markdown]
# ## A plan, and the loop
#
# The test images are public here, so looking at them costs nothing.

# %%
plan = mdp.training.TrainingPlan(
    records=int(private.sum()), lot_size=200, epochs=20, clip_norm=1.0, epsilon=8.0, delta=1e-4
)
optimizer = torch.optim.AdamW(trained, lr=1e-2)
training = mdp.training.PrivateTraining(model, losses, optimizer, plan)
shown = test & ~public
accuracies = []
for lot in training.lots((images[private], classes[private])):
    training.step(lot, batch_size=256)
    with torch.no_grad():
        right = model(pixel_values=images[shown]).logits.argmax(1) == classes[shown]
    accuracies.append(float(right.float().mean()))
print(training.guarantee)
print(f"test accuracy: {accuracies[-1]:.3f}")

# %% [markdown]
# ## How it learned
#
# The guarantee is for adapters and classifier after every step, and for whatever they are used in.

# %%
figure, axes = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
axes.plot(range(1, len(accuracies) + 1), accuracies)
axes.set(xlabel="steps", ylabel="test accuracy", ylim=(0.0, 1.0))
axes.set_title(f"LoRA, epsilon {plan.epsilon:g}, delta {plan.delta:g}")
figure.savefig("lora.png", dpi=120)
print("wrote lora.png")
