# %% [markdown]
# # A private pipeline with scikit-learn's interface
#
# A scaler and a classifier, both private, share one budget in a pipeline. How accurate the
# classifier is depends on that budget, and this example draws how.
#
# As a script: `python examples/ridge_pipeline.py`. It needs the extra `sklearn`.

# %% [markdown]
# ## The data
#
# 1,797 handwritten digits of 8 by 8 pixels. One record is one image with its digit. A tenth of
# them is kept for testing.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split

import matrixdp as mdp

X, y = load_digits(return_X_y=True)
train, test, labels, answers = train_test_split(X, y, test_size=0.1, random_state=0)

# %% [markdown]
# ## What is public
#
# A pixel is from 0 to 16, and there are ten classes. A scaled record is clipped to a norm of 8.
# None of these comes from the data. A fifth of the budget goes to the scaler.

# %%


def pipeline(epsilon: float) -> mdp.estimators.PrivatePipeline:
    """Return a pipeline that shares a budget between its two steps."""
    scaler = mdp.estimators.PrivateStandardScaler(bounds=(0.0, 16.0))
    ridge = mdp.estimators.PrivateRidgeClassifier(data_norm=8.0, classes=range(10))
    return mdp.estimators.PrivatePipeline(
        [("scale", scaler), ("ridge", ridge)], epsilon=epsilon, delta=1e-5, shares=[1, 4]
    )


# %% [markdown]
# ## Five fits at each of five budgets
#
# Each fit is paid for by itself, so all together cost far more than any of them. The digits are
# public; with private records, decide on one epsilon beforehand and fit once.

# %%
epsilons, scores = [0.5, 1.0, 2.0, 4.0, 8.0], []
for epsilon in epsilons:
    fits = [pipeline(epsilon).fit(train, labels) for _ in range(5)]
    scores.append([fit.score(test, answers) for fit in fits])
    print(f"{fits[0].guarantee_} Test accuracy: {np.mean(scores[-1]):.3f}")

# %% [markdown]
# ## Accuracy against epsilon
#
# The line is the mean of five fits, and each dot is one of them. On the right is what the last fit
# at epsilon 8 takes each digit for.

# %%
exact = RidgeClassifier().fit(train, labels).score(test, answers)
figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.0), layout="constrained")
left.plot(epsilons, np.mean(scores, axis=1), color="C3", label="private")
left.plot(epsilons, scores, ".", color="C3", alpha=0.5)
left.axhline(exact, linestyle="--", color="0.5", label="not private")
left.axhline(0.1, linestyle=":", color="black", label="guessing")
left.set(xlabel="epsilon", ylabel="test accuracy", xscale="log", ylim=(0.0, 1.0))
left.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
left.minorticks_off()
left.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.12))
ConfusionMatrixDisplay.from_predictions(
    answers, fits[-1].predict(test), ax=right, cmap="Blues", colorbar=False
)
right.set(xlabel="predicted digit", ylabel="digit")
figure.savefig("ridge_pipeline.png", dpi=120)
print("wrote ridge_pipeline.png")
