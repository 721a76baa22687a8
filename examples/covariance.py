# %% [markdown]
# # A covariance matrix, released once
#
# A covariance matrix says how measurements move together, and it is where principal components,
# regression and factor models begin. Here it is released once, so that no single image shows in
# it. Everything that is computed from it afterwards costs nothing more.
#
# As a script: `python examples/covariance.py`. It needs the extra `sklearn`.

# %% [markdown]
# ## The data
#
# 1,797 handwritten digits, averaged to 4 by 4 pixels, so that one record has 16 numbers. One
# record is one image.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import matrixdp as mdp

images = load_digits().data.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)

# %% [markdown]
# ## What is public
#
# A pixel is from 0 to 16, and there are 1,797 images: that is known without looking at any of
# them. From it follows what one image can change. The preview says how large the errors will be,
# before anything is read or spent.

# %%
bounds = mdp.queries.PublicBounds(16, lower=0.0, upper=16.0)
query = mdp.queries.SampleCovariance(bounds, neighbouring="replace", count=len(images))
budget = mdp.Budget(epsilon=3.0, delta=1e-6)
print(query.preview(budget))

# %% [markdown]
# ## The release
#
# A covariance matrix has no negative eigenvalue, but noise may give it one. The nearest matrix
# that has none is closer to the truth, and as private, since it is computed from the release
# alone.

# %%
release = query.release(images, budget)
print(release.guarantee)
better = mdp.postprocess.process(release, mdp.postprocess.PositiveSemidefinite())

# %% [markdown]
# ## What is left of the truth
#
# The exact matrix is drawn for comparison only: these digits are public. The large eigenvalues are
# well above the noise. Those below the dotted line, the expected size of the noise as a whole,
# cannot be told from it, and neither can their components.

# %%
exact, released = np.cov(images.T, bias=True), np.asarray(better.value)
noise = float(np.median(release.standard_errors())) * 2.0 * np.sqrt(len(exact))
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.0, 3.4), layout="constrained")
largest = float(np.abs(exact).max())
for axes, matrix, title in ((left, exact, "exact"), (middle, released, "released")):
    drawn = axes.imshow(matrix, cmap="RdBu_r", vmin=-largest, vmax=largest)
    axes.set(title=title, xlabel="pixel", xticks=[0, 5, 10, 15], yticks=[0, 5, 10, 15])
left.set_ylabel("pixel")
figure.colorbar(drawn, ax=[left, middle], shrink=0.8, label="covariance")
ranks = range(1, 17)
right.plot(ranks, np.linalg.eigvalsh(exact)[::-1], "o-", color="0.6", label="exact")
right.plot(ranks, np.linalg.eigvalsh(released)[::-1], "o-", color="C3", label="released")
right.axhline(noise, linestyle=":", color="black")
right.text(16, noise, "the noise", ha="right", va="bottom", fontsize=9)
right.set(title="eigenvalues", xlabel="rank")
right.legend(frameon=False)
figure.savefig("covariance.png", dpi=120)
print("wrote covariance.png")
