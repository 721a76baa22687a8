# %% [markdown]
# # Means by group, at the price of one group
#
# Sizes, sums and means of ten groups are released together. One record is in one group only, so
# all ten cost what one would cost.
#
# As a script: `python examples/group_means.py`. It needs the extra `sklearn`, and pandas.

# %% [markdown]
# ## The data
#
# 1,797 handwritten digits of 8 by 8 pixels. One record is one image with its digit.

# %%
import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_digits

import matrixdp as mdp

digits = load_digits()
names = [f"pixel {index}" for index in range(64)]
records = pd.DataFrame(digits.data, columns=names).assign(digit=digits.target)

# %% [markdown]
# ## What is public
#
# A pixel is from 0 to 16, and a digit is one of ten. How many images a digit has is private, and
# is released with the sums: a mean is a released sum over a released count.

# %%
bounds = mdp.queries.PublicBounds(names, lower=[0.0] * 64, upper=[16.0] * 64)
groups = [mdp.queries.Categories("digit", range(10))]
query = mdp.queries.GroupMoments(bounds, "add-remove", by=groups, order=1)

# %% [markdown]
# ## One release for all ten

# %%
release = query.release(records, mdp.Budget(epsilon=2.0, delta=1e-6))
summary = query.summary(release)
print(release.guarantee)
for name, count, error in zip(summary.groups, summary.counts, summary.count_errors, strict=True):
    print(f"{name}: {count:.0f} images, give or take {error:.0f}")

# %% [markdown]
# ## The mean images
#
# Each is 64 numbers with noise; the exact ones below are drawn for comparison only, since these
# digits are public. Twice the images would halve the noise that is left in a mean.

# %%
exact = records.groupby("digit")[names].mean().to_numpy()
figure, rows = plt.subplots(2, 10, figsize=(10.0, 2.5), layout="constrained")
for row, name, means in zip(rows, ("released", "exact"), (summary.means, exact), strict=True):
    row[0].set_ylabel(name)
    for digit, (axes, mean) in enumerate(zip(row, means, strict=True)):
        axes.imshow(mean.reshape(8, 8), cmap="gray_r", vmin=0.0, vmax=16.0, interpolation="bicubic")
        axes.set(xticks=[], yticks=[])
        if name == "released":
            axes.set_title(f"{digit}", fontsize=11)
figure.savefig("group_means.png", dpi=120)
print("wrote group_means.png")
