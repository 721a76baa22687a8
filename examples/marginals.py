# %% [markdown]
# # Tables of counts that agree with each other
#
# Statistical offices publish many tables of the same people. Released one by one, each would take
# its part of the budget, and their totals would contradict each other. Here three tables are one
# release, with the least noise in all, and they agree.
#
# As a script: `python examples/marginals.py`. It needs the extra `sklearn`, and pandas.

# %% [markdown]
# ## The data
#
# 442 patients with diabetes (Efron, Hastie, Johnstone and Tibshirani, 2004). One record is one
# patient.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

import matrixdp as mdp

patients = load_diabetes(as_frame=True, scaled=False).data
records = pd.DataFrame(
    {"age": patients.age, "BMI": patients.bmi, "sex": patients.sex.map({1.0: "A", 2.0: "B"})}
)

# %% [markdown]
# ## What is public
#
# The attributes and where their bins begin and end. The source of the data does not say which sex
# is which, so they are A and B.

# %%
ages, levels = [0.0, 35.0, 50.0, 65.0, 120.0], [0.0, 25.0, 30.0, 100.0]
attributes = [
    mdp.queries.Categories("sex", ["A", "B"]),
    mdp.queries.Bins("age", ages),
    mdp.queries.Bins("BMI", levels),
]
table = mdp.queries.ContingencyTable(attributes, "add-remove")
pairs = [("sex", "age"), ("sex", "BMI"), ("age", "BMI")]

# %% [markdown]
# ## All three tables in one release

# %%
budget = mdp.Budget(epsilon=2.0, delta=1e-6)
mechanism = mdp.MatrixMechanism(table.marginals(pairs), budget, neighbouring="add-remove")
release = mechanism.release_records(table.cells(records))
print(release.guarantee)

# %% [markdown]
# Both tables with the sexes say the same of how many patients each has:

# %%
by_sex = [release.table(table.numbers(pair)).sum(axis=1) for pair in pairs[:2]]
print("A and B by age:", by_sex[0].round(3), " by BMI:", by_sex[1].round(3))

# %% [markdown]
# ## Two of the tables
#
# Bars are what was released, with two standard errors: these are known, since the noise is known.
# The black marks are the exact counts, for comparison only: this data set is public.

# %%
figure, panels = plt.subplots(1, 2, figsize=(10.0, 3.6), layout="constrained", sharey=True)
labels = {
    "age": ["under 35", "35 to 49", "50 to 64", "65 and over"],
    "BMI": ["under 25", "25 to 30", "30 and over"],
}
edges = {"age": ages, "BMI": levels}
for axes, pair in zip(panels, [("sex", "age"), ("age", "BMI")], strict=True):
    counts, errors = (part(table.numbers(pair)) for part in (release.table, release.table_errors))
    rows = ["A", "B"] if pair[0] == "sex" else labels[pair[0]]
    bins = [
        records[name] if name == "sex" else pd.cut(records[name], edges[name], right=False)
        for name in pair
    ]
    exact = pd.crosstab(*bins).to_numpy()
    width = 0.8 / len(rows)
    for row, name in enumerate(rows):
        places = np.arange(counts.shape[1]) + (row - (len(rows) - 1) / 2) * width
        axes.bar(places, counts[row], 0.9 * width, yerr=2 * errors[row], label=name, alpha=0.8)
        axes.plot(places, exact[row], "_", color="black", markersize=60 * width)
    axes.set_xticks(range(counts.shape[1]), labels[pair[1]])
    axes.set_xlabel(pair[1])
    axes.legend(title=pair[0], frameon=False)
panels[0].set_ylabel("patients")
figure.savefig("marginals.png", dpi=120)
print("wrote marginals.png")
